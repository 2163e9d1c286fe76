"""funded: decide whether a run has payers, without looking for a place.

Groups that may be in several locations are funded one after the other, each on top of the groups
before it. Money that pays for any one group may not pay for all. `forecast` and the plans ask this
first, because looking for a place is much more expensive.
"""

from collections.abc import Collection, Mapping, Sequence

from msgspec.structs import replace

from leasehold.core.calendar.entries import Calendar
from leasehold.core.facts import EnvelopeKey, Location
from leasehold.core.funding.claims import claim_on_top, funding_request_for, paid_here
from leasehold.core.funding.cover import cover
from leasehold.core.requests import StartRequest
from leasehold.core.units import Instant
from leasehold.core.verdicts import Covered, Refusal, Refused
from leasehold.core.world.width import locations_for
from leasehold.core.world.world import World

_TRIES_MAX = 256  # in search of payers for all groups


def funded(
    world: World,
    request: StartRequest,
    at: Instant,
    now: Instant,
    *,
    locations: list[Location],
) -> list[Location] | Refused:
    """Return the locations in which the run has payers, or the refusal.

    If the groups may be split over locations, each location returned has payers for one group, and
    all of them together have payers for the whole run.
    """
    gpus = (
        request.placement.gpus_per_group
        if is_split(world, request, locations)
        else request.placement.gpus
    )
    answers = [_cover(world, request, each, gpus, at=at, now=now) for each in locations]
    paired = zip(locations, answers, strict=True)
    funded = [location for location, each in paired if isinstance(each, Covered)]
    if not funded:
        return _first_refusal(answers)
    if is_split(world, request, locations):
        return _funded_together(world, request, locations, at, now) or funded
    return funded


def paid_on_empty_fleet(
    world: World,
    request: StartRequest,
    rooms: Mapping[Location, int],
    *,
    at: Instant,
    now: Instant,
    except_for: tuple[EnvelopeKey, ...] = (),
) -> Refused | None:
    """Return why the run would have no payers at `at` even on an empty fleet; None if it has.

    `rooms`: location -> number of the run's groups that the location could hold if it were empty.
    `except_for`: envelopes that must not pay.
    """
    placement, groups = request.placement, len(request.placement.groups)
    answers = {
        location: _cover(
            world, request, location, placement.gpus, at=at, now=now, except_for=except_for
        )
        for location in rooms
    }
    paid = [location for location, answer in answers.items() if isinstance(answer, Covered)]
    if any(rooms[location] >= groups for location in paid):
        return None
    is_split = placement.spread and groups > 1 and len(rooms) > 1
    if is_split and not _funded_together(
        world, request, list(rooms), at, now, rooms=rooms, except_for=except_for
    ):
        return None
    is_paid_apart = is_split and not _funded_together(
        world, request, list(rooms), at, now, except_for=except_for
    )
    if not paid and not is_paid_apart:
        return _first_refusal(list(answers.values()))
    return Refused(
        reason=Refusal.CAPACITY,
        remedy="the places that its payers pay for have too few nodes for this run, even if "
        "they were empty; name other sponsors, or request less",
        asked=placement.gpus,
    )


def why_unpaid(
    world: World,
    request: StartRequest,
    calendar: Calendar,
    *,
    at: Instant,
    now: Instant,
    rooms: Mapping[Location, int] | None = None,
    returned: Collection[str] = (),
    except_for: tuple[EnvelopeKey, ...] = (),
) -> Refused | None:
    """Return why the run has no payers at `at` in any place it could use; None if it has.

    - `rooms`: location -> number of the run's groups that the location could hold if it were empty
    - `returned`: leases whose money counts as free
    - `except_for`: envelopes that must not pay
    """
    with world.what_if.opened():
        calendar.respect(world, request.run.uid, request.limit)
        for name in sorted(returned):
            world.accounts.end(world.leases[name], world.terms[name], at=now)
        if rooms is not None:
            answer = paid_on_empty_fleet(
                world, request, rooms, at=at, now=now, except_for=except_for
            )
        else:
            locations = locations_for(world, request.run.spec)
            found = funded(world, request, at, now, locations=locations)
            answer = found if isinstance(found, Refused) else None
    return answer


def is_split(world: World, request: StartRequest, locations: Sequence[Location]) -> bool:
    """Return whether the groups may be in several locations that have different payers."""
    if not request.placement.spread or len(request.placement.groups) == 1:
        return False
    return len({paid_here(world, request.placement.flavor, location) for location in locations}) > 1


def _cover(
    world: World,
    request: StartRequest,
    location: Location,
    gpus: int,
    *,
    at: Instant,
    now: Instant,
    borrowed: int = 0,
    except_for: tuple[EnvelopeKey, ...] = (),
) -> Covered | Refused:
    """Return the payers of `gpus` GPUs in a location, or the refusal.

    `borrowed`: GPUs borrowed by earlier groups of the same start.
    """
    ask = funding_request_for(
        request, location, gpus, start=at, borrowed=request.borrowed_already + borrowed
    )
    return cover(world, replace(ask, except_for=except_for) if except_for else ask, now=now)


def _funded_together(
    world: World,
    request: StartRequest,
    locations: list[Location],
    at: Instant,
    now: Instant,
    *,
    rooms: Mapping[Location, int] | None = None,
    except_for: tuple[EnvelopeKey, ...] = (),
) -> Refused | None:
    """Return why a group finds no payers on top of the groups before it; None if all find some.

    Each group takes the first location that pays. If that fails, other distributions are tried.
    `rooms`: location -> number of groups that the location could hold; None means no bound.
    """
    left = {} if rooms is None else dict(rooms)
    refused = None
    with world.what_if.opened():
        payers = GroupPayers(world, request, at=at, now=now, except_for=except_for)
        for _ in request.placement.groups:
            open_ = [location for location in locations if left.get(location, 1) > 0]
            answers = [payers.of(location) for location in open_]
            paired = zip(open_, answers, strict=True)
            funded = next((place for place, each in paired if isinstance(each, Covered)), None)
            if funded is None:
                refused = _first_refusal(answers)
                break
            payers.take(funded)
            if rooms is not None:
                left[funded] -= 1
    if refused is not None and rooms is not None:
        with world.what_if.opened():
            payers = GroupPayers(world, request, at=at, now=now, except_for=except_for)
            if payers.can_pay_for_all(dict(rooms), len(request.placement.groups)):
                return None
    return refused


class GroupPayers:
    """Finds payers for one group after the other.

    The caller must hold an open what-if.
    """

    def __init__(
        self,
        world: World,
        request: StartRequest,
        *,
        at: Instant,
        now: Instant,
        except_for: tuple[EnvelopeKey, ...] = (),
    ) -> None:
        self._world = world
        self._request = request
        self._at, self._now, self._except_for = at, now, except_for
        self._borrowed = 0
        self._known: dict[Location, Covered | Refused] = {}

    def of(self, location: Location) -> Covered | Refused:
        """Return the payers of one more group in `location`, or the refusal."""
        known = self._known.get(location)
        if known is None:
            known = self._known[location] = _cover(
                self._world,
                self._request,
                location,
                self._request.placement.gpus_per_group,
                at=self._at,
                now=self._now,
                borrowed=self._borrowed,
                except_for=self._except_for,
            )
        return known

    def take(self, location: Location) -> Covered:
        """Claim the payers of one more group in `location` and return them.

        The location must have payers for the group (`of`).
        """
        covered = self.of(location)
        assert isinstance(covered, Covered), location
        claims = claim_on_top(self._world, self._request, covered, start=self._at)
        self._borrowed += sum(each.gpus for each in claims if each.borrowed)
        self._known.clear()
        return covered

    def can_pay_for_all(self, left: dict[Location, int], groups: int) -> bool:
        """Return whether `groups` groups find payers, in any distribution over the locations.

        If so, their payers are claimed. `left`: location -> number of groups it can still hold.
        """
        self._tries_left = _TRIES_MAX
        self._dead_ends: set[tuple[int, ...]] = set()
        return self._can_pay_for_rest(left, groups)

    def _can_pay_for_rest(self, left: dict[Location, int], groups: int) -> bool:
        """Find and claim payers for `groups` more groups; return whether all have some.

        If one location leaves no payers for the later groups, the next location is tried.
        """
        if not groups:
            return True
        counts = tuple(left.values())
        if counts in self._dead_ends or self._tries_left <= 0:
            return False
        for location in [each for each, room in left.items() if room > 0]:
            self._tries_left -= 1
            if not isinstance(self.of(location), Covered):
                continue
            borrowed = self._borrowed
            with self._world.what_if.opened() as trial:
                self.take(location)
                if self._can_pay_for_rest({**left, location: left[location] - 1}, groups - 1):
                    trial.keep()
                    return True
            self._borrowed = borrowed
            self._known.clear()
        self._dead_ends.add(counts)
        return False


def _first_refusal(answers: Sequence[Covered | Refused]) -> Refused:
    """Return the first refusal that waiting may clear, or else the first one."""
    refusals = [each for each in answers if isinstance(each, Refused)]
    if not refusals:
        return Refused(
            reason=Refusal.NO_SUCH_FLAVOR, remedy="no node in the allowed places has this flavor"
        )
    return next((each for each in refusals if each.time_may_help), refusals[0])
