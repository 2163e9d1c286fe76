"""funded: decide whether a run has payers, before looking for a place.

Groups that may be in several locations are funded one after the other, each on top of those before
it, because money that pays for one group may not suffice for all. `resolve` asks in its what-if
before it cuts anything: victims free GPUs, not money. `forecast` asks so as not to search for a
place at every instant at which GPUs come free.
"""

from collections.abc import Collection, Mapping, Sequence

from msgspec.structs import replace

from leasehold.core.decisions.admit import Wish, ask_for, claim_on_top, paid_here
from leasehold.core.decisions.calendar import Calendar
from leasehold.core.decisions.cover import cover
from leasehold.core.facts import EnvelopeKey, Location
from leasehold.core.units import Instant
from leasehold.core.verdicts import Covered, Refusal, Refused
from leasehold.core.world.width import locations_for
from leasehold.core.world.world import World

_TRIES_MAX = 256  # in search of payers for all groups


def funded(
    world: World,
    wish: Wish,
    at: Instant,
    now: Instant,
    *,
    locations: list[Location],
) -> list[Location] | Refused:
    """Return the locations in which the run has payers, or the refusal.

    If its groups may be split over locations, each must be able to pay for one group, and all of
    them together for the whole run.
    """
    gpus = wish.want.gpus_per_group if is_split(world, wish, locations) else wish.want.gpus
    answers = [_cover(world, wish, each, gpus, at=at, now=now) for each in locations]
    paired = zip(locations, answers, strict=True)
    funded = [location for location, each in paired if isinstance(each, Covered)]
    if not funded:
        return _first_refusal(answers)
    if is_split(world, wish, locations):
        return _funded_together(world, wish, locations, at, now) or funded
    return funded


def paid_on_empty_fleet(
    world: World,
    wish: Wish,
    rooms: Mapping[Location, int],
    *,
    at: Instant,
    now: Instant,
    but: tuple[EnvelopeKey, ...] = (),
) -> Refused | None:
    """Return why the run has no payers at `at`, in whatever place; None if it has.

    `rooms`: location -> number of groups it could hold if it were empty.
    """
    want, groups = wish.want, len(wish.want.groups)
    answers = {
        location: _cover(world, wish, location, want.gpus, at=at, now=now, but=but)
        for location in rooms
    }
    paid = [location for location, answer in answers.items() if isinstance(answer, Covered)]
    if any(rooms[location] >= groups for location in paid):
        return None
    is_split = want.spread and groups > 1 and len(rooms) > 1
    if is_split and not _funded_together(world, wish, list(rooms), at, now, rooms=rooms, but=but):
        return None
    if not paid:
        return _first_refusal(list(answers.values()))
    return Refused(
        reason=Refusal.CAPACITY,
        remedy="the places that its payers pay for have too few nodes for this run, even if "
        "they were empty; name other sponsors, or request less",
        asked=want.gpus,
    )


def nobody_pays(
    world: World,
    wish: Wish,
    calendar: Calendar,
    *,
    at: Instant,
    now: Instant,
    rooms: Mapping[Location, int] | None = None,
    returned: Collection[str] = (),
    but: tuple[EnvelopeKey, ...] = (),
) -> Refused | None:
    """Return why the run has no payers at `at` in any place it could use; None if it has.

    - `rooms`: location -> number of groups it could hold if it were empty
    - `returned`: leases whose money has come back
    - `but`: envelopes that must not pay
    """
    with world.what_if.opened():
        calendar.respect(world, wish.run.uid, wish.limit)
        for name in sorted(returned):
            world.accounts.end(world.leases[name], world.terms[name], at=now)
        if rooms is not None:
            answer = paid_on_empty_fleet(world, wish, rooms, at=at, now=now, but=but)
        else:
            locations = locations_for(world, wish.run.spec)
            found = funded(world, wish, at, now, locations=locations)
            answer = found if isinstance(found, Refused) else None
    return answer


def is_split(world: World, wish: Wish, locations: Sequence[Location]) -> bool:
    """Return whether the groups may be in several locations that have different payers."""
    if not wish.want.spread or len(wish.want.groups) == 1:
        return False
    return len({paid_here(world, wish.want.flavor, location) for location in locations}) > 1


def _cover(
    world: World,
    wish: Wish,
    location: Location,
    gpus: int,
    *,
    at: Instant,
    now: Instant,
    borrowed: int = 0,
    but: tuple[EnvelopeKey, ...] = (),
) -> Covered | Refused:
    ask = ask_for(wish, location, gpus, start=at, borrowed=wish.borrowed_already + borrowed)
    return cover(world, replace(ask, except_for=but) if but else ask, now=now)


def _funded_together(
    world: World,
    wish: Wish,
    locations: list[Location],
    at: Instant,
    now: Instant,
    *,
    rooms: Mapping[Location, int] | None = None,
    but: tuple[EnvelopeKey, ...] = (),
) -> Refused | None:
    """Return why some group finds no payer on top of the groups before it; None if all do.

    `rooms`: location -> number of groups it could hold.
    """
    left = {} if rooms is None else dict(rooms)
    refused = None
    with world.what_if.opened():
        bills = Bills(world, wish, at=at, now=now, but=but)
        for _ in wish.want.groups:
            open_ = [location for location in locations if left.get(location, 1) > 0]
            answers = [bills.of(location) for location in open_]
            paired = zip(open_, answers, strict=True)
            funded = next((place for place, each in paired if isinstance(each, Covered)), None)
            if funded is None:
                refused = _first_refusal(answers)
                break
            bills.take(funded)
            if rooms is not None:
                left[funded] -= 1
    if refused is not None and rooms is not None:
        with world.what_if.opened():
            bills = Bills(world, wish, at=at, now=now, but=but)
            if bills.pay_somehow(dict(rooms), len(wish.want.groups)):
                return None
    return refused


class Bills:
    """The payers of one group after the other. The caller must hold an open what-if."""

    def __init__(
        self,
        world: World,
        wish: Wish,
        *,
        at: Instant,
        now: Instant,
        but: tuple[EnvelopeKey, ...] = (),
    ) -> None:
        self._world = world
        self._wish = wish
        self._at, self._now, self._but = at, now, but
        self._borrowed = 0
        self._known: dict[Location, Covered | Refused] = {}

    def of(self, location: Location) -> Covered | Refused:
        """Return the cover for one more group in `location`."""
        known = self._known.get(location)
        if known is None:
            known = self._known[location] = _cover(
                self._world,
                self._wish,
                location,
                self._wish.want.gpus_per_group,
                at=self._at,
                now=self._now,
                borrowed=self._borrowed,
                but=self._but,
            )
        return known

    def take(self, location: Location) -> Covered:
        covered = self.of(location)
        assert isinstance(covered, Covered), location
        claims = claim_on_top(self._world, self._wish, covered, start=self._at)
        self._borrowed += sum(each.gpus for each in claims if each.borrowed)
        self._known.clear()
        return covered

    def pay_somehow(self, left: dict[Location, int], groups: int) -> bool:
        """Return whether so many groups find payers in locations with so many groups' room `left`,
        each in some place that leaves payers to those after it."""
        self._tries = _TRIES_MAX
        self._in_vain: set[tuple[int, ...]] = set()
        return self._pay_the_rest(left, groups)

    def _pay_the_rest(self, left: dict[Location, int], groups: int) -> bool:
        if not groups:
            return True
        counts = tuple(left.values())
        if counts in self._in_vain or self._tries <= 0:
            return False
        for location in [each for each, room in left.items() if room > 0]:
            self._tries -= 1
            if not isinstance(self.of(location), Covered):
                continue
            borrowed = self._borrowed
            with self._world.what_if.opened() as trial:
                self.take(location)
                if self._pay_the_rest({**left, location: left[location] - 1}, groups - 1):
                    trial.keep()
                    return True
            self._borrowed = borrowed
            self._known.clear()
        self._in_vain.add(counts)
        return False


def _first_refusal(answers: Sequence[Covered | Refused]) -> Refused:
    """Return the first refusal that time may clear, otherwise the first."""
    refusals = [each for each in answers if isinstance(each, Refused)]
    if not refusals:
        return Refused(
            reason=Refusal.NO_SUCH_FLAVOR, remedy="no node in the allowed places has this flavor"
        )
    return next((each for each in refusals if each.time_may_help), refusals[0])
