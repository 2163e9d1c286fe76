"""admit: cover and pack together; returns the first plan that is both funded and placed (P4).

Tries one location for the whole run, in the order in which cover would pay; then, if groups may
spread, group by group. Called for starts, grows and forecasts. Changes nothing.
"""

from collections.abc import Collection

from msgspec.structs import replace

from leasehold.core.decisions.calendar import Calendar, Kept
from leasehold.core.decisions.cover import Ask, cover
from leasehold.core.decisions.pack import (
    Want,
    candidate_pools,
    fits,
    pack,
    pack_in_one_domain,
    pods_room,
    shape_of,
    try_pack,
)
from leasehold.core.facts import EnvelopeKey, Gang, Location, Record, Relation, Run
from leasehold.core.units import FOREVER, HOUR, Instant, Millis, plural
from leasehold.core.verdicts import (
    Admitted,
    Covered,
    CoverStep,
    Packed,
    Refusal,
    Refused,
    Segment,
)
from leasehold.core.world.accounts import Claim
from leasehold.core.world.width import locations_for
from leasehold.core.world.world import World

_OF_PLACE = (Refusal.CAPACITY, Refusal.NO_DOMAIN_FITS, Refusal.NODE_RESOURCES)


class Wish(Record):
    """A request to start groups of a run: the first ones, or more of them."""

    run: Run
    want: Want
    span: Millis | None  # the rest of its limit
    borrowed_already: int = 0
    waiting: int = 0  # number of waiting groups of a sweep

    @property
    def end_after(self) -> Millis:
        return FOREVER if self.span is None else self.span

    @property
    def limit(self) -> Millis:
        """Return the limit that the run declares, however much of it is left (Q10)."""
        limit = self.run.spec.max_duration
        return FOREVER if limit is None else limit

    @property
    def linger(self) -> Millis:
        """Return how long stopping may take after the limit (Q8)."""
        return min(self.run.spec.grace, HOUR)

    @property
    def in_the_way(self) -> Millis:
        """Return for how long its GPUs are unavailable to others."""
        return FOREVER if self.span is None else self.span + self.linger


def admit(
    world: World,
    wish: Wish,
    calendar: Calendar,
    *,
    start: Instant,
    now: Instant,
    gone: Collection[str] = (),
) -> Admitted | Refused:
    """Return payers and places for the whole request, besides what the calendar keeps, or the
    refusal.

    `gone`: leases that the caller has already given back.
    """
    locations = locations_for(world, wish.run.spec)
    if not locations:
        return no_such_flavor(wish.want)
    with world.what_if.opened():
        as_found_by(world, wish, calendar, start=start, gone=gone)
        answer: Admitted | Refused | None = _elsewhere(world, wish, locations, start, now)
        funded: list[Location] = []
        if answer is None:
            wish = _in_its_domain(world, wish, locations, start=start, now=now)
            answer, funded = _admit(world, wish, locations, start, now)
    if isinstance(answer, Refused) and answer.reason in _OF_PLACE:
        return _held_or(world, wish, funded, answer)
    return answer


def _in_its_domain(
    world: World, wish: Wish, locations: list[Location], *, start: Instant, now: Instant
) -> Wish:
    """Limit the first groups of a sweep that may not spread to one domain (G3).

    It is the paid domain in which most of the waiting groups fit; among equals the one left with
    least. The caller must hold an open what-if.
    """
    want = wish.want
    if wish.run.spec.gang is not Gang.GROUP or want.spread or want.within:
        return wish
    best: tuple[int, int, str] | None = None
    answers = _covers(world, wish, locations, start, now)
    paid = [location for location, answer in answers if isinstance(answer, Covered)]
    for pool in candidate_pools(world.fleet, want, paid):
        groups = pods_room(world.fleet, pool, shape_of(want)) // (want.pods + want.spares)
        rank = (-min(groups, wish.waiting), pool.free, pool.domain)
        best = rank if best is None else min(best, rank)
    if best is None or not best[0]:
        return wish
    return replace(wish, want=replace(want, within=(best[2],)))


def groups_at_most(world: World, wish: Wish, calendar: Calendar, *, now: Instant) -> int:
    """Return how many groups of `wish` the free GPUs and the payers of all locations allow."""
    locations = locations_for(world, wish.run.spec)
    with world.what_if.opened():
        as_found_by(world, wish, calendar, start=now)
        fleet, flavor = world.fleet, wish.want.flavor
        free = sum(free for location in locations for free, _ in fleet.by_free(flavor, *location))
        answers = [answer for _, answer in _covers(world, wish, locations, now, now)]
    paid = sum(step.taken for answer in answers for step in answer.trace)
    return min(free, paid) // wish.want.gpus_per_group


def as_found_by(
    world: World,
    wish: Wish,
    calendar: Calendar,
    *,
    start: Instant,
    gone: Collection[str] = (),
) -> Kept:
    """Prepare fleet and accounts as a run that starts at `start` would find them.

    The caller must hold an open what-if. `gone`: leases that the caller has already given back.
    """
    # Tolerate taints first: GPUs that entries keep on those nodes are not free either.
    world.fleet.tolerate(wish.run.spec.tolerations)
    end = min(FOREVER, start + wish.in_the_way)
    uid = wish.run.uid
    return calendar.apply(world, uid, span=wish.limit, start=start, end=end, gone=gone)


def _elsewhere(
    world: World, wish: Wish, locations: list[Location], start: Instant, now: Instant
) -> Admitted | None:
    """Admit without the nodes that rejected a bind, wherever they are (P3); None if that fails."""
    shunned = [name for name in wish.want.last if name in world.fleet.nodes]
    if not shunned:
        return None
    with world.what_if.opened():
        for name in shunned:
            world.fleet.plan(name, world.fleet.nodes[name].node.gpus)
        wish = _in_its_domain(world, wish, locations, start=start, now=now)
        answer, _ = _admit(world, wish, locations, start, now)
    return answer if isinstance(answer, Admitted) else None


def owner_allowed(world: World, run: Run) -> Refused | None:
    """Return the refusal if runs of this namespace may not charge the owner."""
    if world.tree.may_spend(run.spec.owner, run.namespace):
        return None
    return Refused(
        reason=Refusal.OWNER_NOT_ALLOWED,
        remedy=f"no Budget of {run.spec.owner} is in namespace {run.namespace} or lists that "
        "namespace under spec.namespaces; create such a Budget, or correct spec.owner",
        asked=run.spec.total_gpus,
        subject=run.spec.owner,
    )


def no_such_flavor(want: Want) -> Refused:
    return Refused(
        reason=Refusal.NO_SUCH_FLAVOR,
        remedy=f"no node with {want.flavor} is in a place where this run may run; check "
        "resources.gpuType and locality.selector",
        asked=want.gpus,
        short_by=want.gpus,
    )


def _held_or(world: World, wish: Wish, locations: list[Location], refused: Refused) -> Refused:
    with world.what_if.opened():
        world.fleet.tolerate(wish.run.spec.tolerations)
        unheld = pack(world, wish.want, locations) if locations else refused
    if isinstance(unheld, Refused):  # held GPUs are not what it lacks
        return _as_asked(unheld, refused.trace, refused.elsewhere)
    return replace(held(wish.want, refused.trace), elsewhere=refused.elsewhere)


def held(want: Want, trace: tuple[CoverStep, ...]) -> Refused:
    """Return the refusal of a run that would fit if plans and holds ahead did not need the GPUs."""
    return Refused(
        reason=Refusal.HELD,
        remedy=f"{plural(want.gpus, 'GPU')} {'is' if want.gpus == 1 else 'are'} free but held "
        "for reservations ahead of this run; with a shorter runtime.maxDuration the run "
        "may be backfilled",
        asked=want.gpus,
        trace=trace,
    )


def ask_for(wish: Wish, location: Location, gpus: int, *, start: Instant, borrowed: int) -> Ask:
    spec = wish.run.spec
    return Ask(
        owner=spec.owner,
        flavor=spec.flavor,
        region=location[0],
        cluster=location[1],
        gpus=gpus,
        start=start,
        span=wish.span,
        linger=wish.linger,
        funding=spec.funding,
        borrowed_already=borrowed,
    )


def _admit(
    world: World, wish: Wish, locations: list[Location], start: Instant, now: Instant
) -> tuple[Admitted | Refused, list[Location]]:
    """Return the answer, and the locations that have payers."""
    funded: list[tuple[Location, Covered]] = []
    refusals: list[Refused] = []
    for location, answer in _covers(world, wish, locations, start, now):
        if isinstance(answer, Covered):
            funded.append((location, answer))
        else:
            refusals.append(answer)
    paid = [location for location, _ in funded]
    at_home = bool(wish.want.own_domains)
    plan = _one_place(world, _at_home(wish) if at_home else wish, funded)
    apart = at_home or (len(locations) > 1 and len(wish.want.groups) > 1)
    if plan is None and wish.want.spread and apart:
        plan = _group_by_group(world, wish, locations, start, now)
    if plan is not None:
        return plan, paid
    if not funded:
        return next((each for each in refusals if each.time_may_help), refusals[0]), paid
    short = pack(world, wish.want, paid)
    assert isinstance(short, Refused)
    trace = sorted(funded, key=preference)[0][1].trace
    asked = {step.envelope for each in refusals for step in each.trace}
    return _as_asked(short, trace, tuple(sorted(asked))), paid


def _at_home(wish: Wish) -> Wish:
    """Return the request limited to one of the domains that the run already uses."""
    want = wish.want
    home = tuple(each for each in want.own_domains if not want.within or each in want.within)
    # If none of its own domains may be used, no domain may: none has an empty name.
    return replace(wish, want=replace(want, within=home or ("",), own_domains=(), spread=False))


def _covers(
    world: World, wish: Wish, locations: list[Location], start: Instant, now: Instant
) -> list[tuple[Location, Covered | Refused]]:
    """Return the cover for each location; locations with the same envelopes share one walk."""
    found: list[tuple[Location, Covered | Refused]] = []
    by_payers: dict[tuple[bool, ...], Covered | Refused] = {}
    for location in locations:
        payers = paid_here(world, wish.want.flavor, location)
        known = by_payers.get(payers)
        if known is None:
            ask = ask_for(
                wish, location, wish.want.gpus, start=start, borrowed=wish.borrowed_already
            )
            known = by_payers[payers] = cover(world, ask, now=now)
        found.append((location, known))
    return found


def paid_here(world: World, flavor: str, location: Location) -> tuple[bool, ...]:
    """Return which selectors match a location.

    A trace cannot tell, because a walk that ended early has not met all envelopes: the owner's own
    ones for other locations come after the family's for this one.
    """
    region, cluster = location
    return tuple(
        selector[0] in (None, region) and selector[1] in (None, cluster)
        for selector in world.tree.selectors(flavor)
    )


def _as_asked(
    refused: Refused, trace: tuple[CoverStep, ...], elsewhere: tuple[EnvelopeKey, ...]
) -> Refused:
    helps = refused.reason is not Refusal.NO_SUCH_FLAVOR
    return replace(refused, trace=trace, time_may_help=helps, elsewhere=elsewhere)


def preference(funded: tuple[Location, Covered]) -> tuple[int, int, Location]:
    """Return the sort key of P4: least borrowed, then least shared, then by name."""
    shares = dict.fromkeys(Relation, 0)
    for segment in funded[1].segments:
        shares[segment.relation] += segment.gpus
    return shares[Relation.BORROWED], shares[Relation.SHARED], funded[0]


def _one_place(world: World, wish: Wish, funded: list[tuple[Location, Covered]]) -> Admitted | None:
    """Return a plan for everything at one location: the best-paid one, among equals with least
    left over."""
    ranked = sorted(funded, key=preference)
    first = ranked[0][1].trace if ranked else ()
    while ranked:
        rank = preference(ranked[0])[:2]
        equals = [each for each in ranked if preference(each)[:2] == rank]
        found = _among_equals(world, wish, equals)
        if found is not None:
            return found if len(ranked) == len(funded) else replace(found, first_trace=first)
        ranked = ranked[len(equals) :]
    return None


def _among_equals(
    world: World, wish: Wish, equals: list[tuple[Location, Covered]]
) -> Admitted | None:
    covers = dict(equals)
    # The usual case: one domain that holds all leaves less over than a spread.
    packed = pack_in_one_domain(world, wish.want, [location for location, _ in equals])
    if packed is not None:
        node = world.fleet.nodes[packed.places[0].node].node
        location = (node.region, node.cluster)
        return Admitted(covered=((location, covers[location]),), packed=packed)
    best: tuple[int, Location, Packed] | None = None
    for location, _ in equals:
        answer = try_pack(world, wish.want, [location])
        if answer is not None:
            left = sum(free for _, free in answer.left_over)
            if best is None or (left, location) < best[:2]:
                best = (left, location, answer)
    if best is None:
        return None
    return Admitted(covered=((best[1], covers[best[1]]),), packed=best[2])


def _group_by_group(
    world: World, wish: Wish, locations: list[Location], start: Instant, now: Instant
) -> Admitted | None:
    """Place each group at the best-paid location, on top of the groups before it.

    Domains that the run already uses come before all others. If some group finds no place, groups
    before it make way: each takes the best place that leaves one for the others.
    """
    seating = _Seating(world, wish, locations, start=start, now=now)
    with world.what_if.opened():
        found = seating.seat_all()
    if found is None and len(locations) > 1 and fits(world, _anywhere(wish.want), locations):
        with world.what_if.opened():
            found = seating.seat_all_somehow()
    if found is None:
        return None
    parts: dict[Location, list[Covered]] = {}
    for location, covered, _ in found:
        parts.setdefault(location, []).append(covered)
    covered_by = tuple((location, merged(covers)) for location, covers in sorted(parts.items()))
    places = tuple(place for _, _, packed in found for place in packed.places)
    return Admitted(covered=covered_by, packed=Packed(places=places))


_Seat = tuple[Location, Covered, Packed]  # of one group
_SEATS_TRIED_MAX = 256  # bound on the search for places of all groups


class _Seating:
    """Places groups one after the other. The caller must hold an open what-if."""

    def __init__(
        self, world: World, wish: Wish, locations: list[Location], *, start: Instant, now: Instant
    ) -> None:
        self._world, self._wish = world, wish
        self._locations = locations
        self._start, self._now = start, now
        self._borrowed = wish.borrowed_already
        self._left = _SEATS_TRIED_MAX
        # counts of groups per location from which no solution was found
        self._in_vain: set[tuple[int, ...]] = set()

    def seat_all(self) -> list[_Seat] | None:
        """Give each group its best place; None if some group finds none."""
        found: list[_Seat] = []
        for group in self._wish.want.groups:
            seat = self._best(group, self._locations)
            if seat is None:
                self._borrowed = self._wish.borrowed_already
                return None
            self._sit_down(seat)
            found.append(seat)
        return found

    def seat_all_somehow(self) -> list[_Seat] | None:
        """Give each group the best place that leaves one for the groups after it; None if there
        is none."""
        return self._seat_the_rest([])

    def _seat_the_rest(self, before: list[_Seat]) -> list[_Seat] | None:
        groups = self._wish.want.groups
        if len(before) == len(groups):
            return before
        counts = tuple(sum(seat[0] == each for seat in before) for each in self._locations)
        if counts in self._in_vain or self._left <= 0:
            return None
        others = list(self._locations)
        while others:
            self._left -= 1
            seat = self._best(groups[len(before)], others)
            if seat is None:
                break
            borrowed = self._borrowed
            with self._world.what_if.opened() as trial:
                self._sit_down(seat)
                found = self._seat_the_rest([*before, seat])
                if found is not None:
                    trial.keep()
                    return found
            self._borrowed = borrowed
            others.remove(seat[0])
        self._in_vain.add(counts)
        return None

    def _best(self, group: int, locations: list[Location]) -> _Seat | None:
        return _one_group(
            self._world,
            self._wish,
            group,
            locations,
            start=self._start,
            now=self._now,
            borrowed=self._borrowed,
        )

    def _sit_down(self, seat: _Seat) -> None:
        world, wish = self._world, self._wish
        claims = claim_on_top(world, wish, seat[1], start=self._start)
        self._borrowed += sum(each.gpus for each in claims if each.borrowed)
        for pod in seat[2].places:
            world.fleet.plan_pod(pod.node, shape_of(wish.want))


def _anywhere(want: Want) -> Want:
    return replace(want, own_domains=())


def claim_on_top(world: World, wish: Wish, covered: Covered, *, start: Instant) -> list[Claim]:
    """Claim the money of one group, so that it pays for no other group, and return the claims.

    The caller must hold an open what-if.
    """
    claims = claims_of(world, wish, covered, start=start)
    for claim in claims:
        world.accounts.claim(claim)
    return claims


def _one_group(
    world: World,
    wish: Wish,
    group: int,
    locations: list[Location],
    *,
    start: Instant,
    now: Instant,
    borrowed: int,
) -> tuple[Location, Covered, Packed] | None:
    single = replace(wish.want, groups=(group,))
    alone = Wish(run=wish.run, want=single, span=wish.span)
    funded = []
    for location in locations:
        ask = ask_for(alone, location, single.gpus, start=start, borrowed=borrowed)
        covered = cover(world, ask, now=now)
        if isinstance(covered, Covered):
            funded.append((location, covered))
    found = _one_place(world, _at_home(alone), funded) if single.own_domains else None
    if found is None:
        away = replace(alone, want=_anywhere(single))
        found = _one_place(world, away, funded)
    if found is None:
        return None
    location, covered = found.covered[0]
    return location, covered, found.packed


def claims_of(world: World, wish: Wish, covered: Covered, *, start: Instant) -> list[Claim]:
    """Return the claims that a plan has on its payers."""
    claims = []
    for segment in covered.segments:
        until = world.envelopes[segment.envelope].end
        span = world.policy.accounting_horizon if wish.span is None else wish.span
        committed = max(0, min(start + span, until) - start)
        claims.append(
            Claim(
                uid=wish.run.uid,
                payer=segment.envelope,
                start=start,
                end=min(FOREVER, start + wish.end_after),
                gpus=segment.gpus,
                borrowed=segment.relation is Relation.BORROWED,
                gpu_ms=segment.gpus * committed,
            )
        )
    return claims


def merged(covers: list[Covered]) -> Covered:
    """Return the segments of several groups at one location, one per payer, in the order of the
    walk."""
    found: dict[str, Segment] = {}
    for covered in covers:
        for segment in covered.segments:
            known = found.get(segment.envelope)
            found[segment.envelope] = Segment(
                envelope=segment.envelope,
                owner=segment.owner,
                gpus=segment.gpus + (known.gpus if known else 0),
                relation=segment.relation,
            )
    return Covered(segments=tuple(found.values()), trace=covers[0].trace)
