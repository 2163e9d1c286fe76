"""admit: find payers and places for a run together (P4).

`admit` first tries one location for the whole run: the location whose payers lend and share least
comes first. If no location holds the whole run and its groups may spread, each group is placed
alone. The first plan with both payers and places is returned. Called for starts, grows and
forecasts. Changes nothing.
"""

from collections.abc import Collection

from msgspec.structs import replace

from leasehold.core.calendar.entries import Calendar, Overlay
from leasehold.core.facts import EnvelopeKey, Gang, Location, Run
from leasehold.core.funding.claims import (
    claim_on_top,
    funding_request_for,
    merged,
    paid_here,
    preference,
)
from leasehold.core.funding.cover import cover
from leasehold.core.funding.funded import funded as locations_with_payers
from leasehold.core.funding.funded import is_split
from leasehold.core.placement.pack import (
    candidate_pools,
    fits,
    pack,
    pack_in_one_domain,
    pods_room,
    shape_of,
    try_pack,
)
from leasehold.core.requests import PlacementRequest, StartRequest
from leasehold.core.units import FOREVER, Instant, plural
from leasehold.core.verdicts import (
    Admitted,
    Covered,
    CoverStep,
    Packed,
    Refusal,
    Refused,
)
from leasehold.core.world.width import locations_for
from leasehold.core.world.world import World

_OF_PLACE = (Refusal.CAPACITY, Refusal.NO_DOMAIN_FITS, Refusal.NODE_RESOURCES)


def admit(
    world: World,
    request: StartRequest,
    calendar: Calendar,
    *,
    start: Instant,
    now: Instant,
    gone: Collection[str] = (),
) -> Admitted | Refused:
    """Return payers and places for the whole request, or the refusal.

    The run leaves free what the calendar keeps from it: the plans of the runs ahead, and holds.
    `gone`: leases whose GPUs the caller has already freed.
    """
    locations = locations_for(world, request.run.spec)
    if not locations:
        return no_such_flavor(request.placement)
    with world.what_if.opened():
        as_found_by(world, request, calendar, start=start, gone=gone)
        answer: Admitted | Refused | None = _without_rejecting_nodes(
            world, request, locations, start, now
        )
        funded: list[Location] = []
        if answer is None:
            request = _in_its_domain(world, request, locations, start=start, now=now)
            answer, funded = _admit(world, request, locations, start, now)
    if isinstance(answer, Refused) and answer.reason in _OF_PLACE:
        return _explain_lack_of_place(world, request, funded, answer)
    return answer


def _in_its_domain(
    world: World, request: StartRequest, locations: list[Location], *, start: Instant, now: Instant
) -> StartRequest:
    """Return the request; limit it to one domain if it is for the first groups of a sweep that may
    not spread (G3).

    The domain is the one with payers in which most of the waiting groups fit. Of several such
    domains, the one with the fewest free GPUs is taken.
    The caller must hold an open what-if.
    """
    placement = request.placement
    if request.run.spec.gang is not Gang.GROUP or placement.spread or placement.within:
        return request
    best: tuple[int, int, str] | None = None
    answers = _covers(world, request, locations, start, now)
    paid = [location for location, answer in answers if isinstance(answer, Covered)]
    for pool in candidate_pools(world.fleet, placement, paid):
        groups = pods_room(world.fleet, pool, shape_of(placement)) // (
            placement.pods + placement.spares
        )
        rank = (-min(groups, request.waiting), pool.free, pool.domain)
        best = rank if best is None else min(best, rank)
    if best is None or not best[0]:
        return request
    return replace(request, placement=replace(placement, within=(best[2],)))


def groups_at_most(world: World, request: StartRequest, calendar: Calendar, *, now: Instant) -> int:
    """Return how many groups of `request` the free GPUs and the payers of all locations allow."""
    locations = locations_for(world, request.run.spec)
    with world.what_if.opened():
        as_found_by(world, request, calendar, start=now)
        fleet, flavor = world.fleet, request.placement.flavor
        free = sum(free for location in locations for free, _ in fleet.by_free(flavor, *location))
        answers = [answer for _, answer in _covers(world, request, locations, now, now)]
    paid = sum(step.taken for answer in answers for step in answer.trace)
    return min(free, paid) // request.placement.gpus_per_group


def as_found_by(
    world: World,
    request: StartRequest,
    calendar: Calendar,
    *,
    start: Instant,
    gone: Collection[str] = (),
) -> Overlay:
    """Change fleet and accounts to the state that a run which starts at `start` would find.

    Nodes whose taints the run tolerates take work. GPUs and money that the calendar keeps from the
    run are taken.
    `gone`: leases whose GPUs the caller has already freed.
    The caller must hold an open what-if.
    """
    # Tolerate taints first, so that GPUs that entries keep on tainted nodes are taken off as well.
    world.fleet.tolerate(request.run.spec.tolerations)
    end = min(FOREVER, start + request.in_the_way)
    uid = request.run.uid
    return calendar.apply(world, uid, limit=request.limit, start=start, end=end, gone=gone)


def _without_rejecting_nodes(
    world: World, request: StartRequest, locations: list[Location], start: Instant, now: Instant
) -> Admitted | None:
    """Return a plan that avoids every node that rejected a bind of this attempt (P3).

    Returns None if no node rejected a bind, or if there is no such plan.
    The caller must hold an open what-if.
    """
    rejecting = [name for name in request.placement.last if name in world.fleet.nodes]
    if not rejecting:
        return None
    with world.what_if.opened():
        for name in rejecting:
            world.fleet.plan(name, world.fleet.nodes[name].node.gpus)
        request = _in_its_domain(world, request, locations, start=start, now=now)
        answer, _ = _admit(world, request, locations, start, now)
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


def no_such_flavor(placement: PlacementRequest) -> Refused:
    """Return the refusal of a run for which no location has a node of its flavor."""
    return Refused(
        reason=Refusal.NO_SUCH_FLAVOR,
        remedy=f"no node with {placement.flavor} is in a place where this run may run; check "
        "resources.gpuType and locality.selector",
        asked=placement.gpus,
        short_by=placement.gpus,
    )


def _explain_lack_of_place(
    world: World, request: StartRequest, locations: list[Location], refused: Refused
) -> Refused:
    """Return the reason why the run has no place.

    The reason is `HeldForReservation` if the run would fit on an empty calendar. Otherwise it is
    the reason why the run would not fit even then.
    """
    with world.what_if.opened():
        world.fleet.tolerate(request.run.spec.tolerations)
        unheld = pack(world, request.placement, locations) if locations else refused
    if isinstance(unheld, Refused):  # the run would not fit without the calendar either
        return _with_trace(unheld, refused.trace, refused.elsewhere)
    return replace(held(request.placement, refused.trace), elsewhere=refused.elsewhere)


def held(placement: PlacementRequest, trace: tuple[CoverStep, ...]) -> Refused:
    """Return the refusal of a run that would fit if plans and holds ahead did not need the GPUs."""
    return Refused(
        reason=Refusal.HELD,
        remedy=f"{plural(placement.gpus, 'GPU')} {'is' if placement.gpus == 1 else 'are'} free but "
        "held for reservations ahead of this run; with a shorter runtime.maxDuration the run "
        "may be backfilled",
        asked=placement.gpus,
        trace=trace,
    )


def _admit(
    world: World, request: StartRequest, locations: list[Location], start: Instant, now: Instant
) -> tuple[Admitted | Refused, list[Location]]:
    """Return the plan or refusal, and the locations that have payers.

    The caller must hold an open what-if.
    """
    funded: list[tuple[Location, Covered]] = []
    refusals: list[Refused] = []
    for location, answer in _covers(world, request, locations, start, now):
        if isinstance(answer, Covered):
            funded.append((location, answer))
        else:
            refusals.append(answer)
    paid = [location for location, _ in funded]
    has_own_domains = bool(request.placement.own_domains)
    plan = _in_one_location(world, _in_own_domains(request) if has_own_domains else request, funded)
    may_split = has_own_domains or (len(locations) > 1 and len(request.placement.groups) > 1)
    if plan is None and request.placement.spread and may_split:
        plan = _group_by_group(world, request, locations, start, now)
    if plan is not None:
        return plan, paid
    if not funded:
        return _unfunded(world, request, locations, refusals, start=start, now=now), paid
    short = pack(world, request.placement, paid)
    assert isinstance(short, Refused)
    trace = sorted(funded, key=preference)[0][1].trace
    asked = {step.envelope for each in refusals for step in each.trace}
    return _with_trace(short, trace, tuple(sorted(asked))), paid


def _unfunded(
    world: World,
    request: StartRequest,
    locations: list[Location],
    refusals: list[Refused],
    *,
    start: Instant,
    now: Instant,
) -> Refused:
    """Return the refusal of a run for which no single location has payers (C7).

    If several locations together have payers for its groups, the run lacks only GPUs.
    `refusals`: of each location for the whole run.
    """
    first = next((each for each in refusals if each.time_may_help), refusals[0])
    asked = tuple(sorted({step.envelope for each in refusals for step in each.trace}))
    if not is_split(world, request, locations) or isinstance(
        locations_with_payers(world, request, start, now, locations=locations), Refused
    ):
        return replace(first, elsewhere=asked)
    short = Refused(
        reason=Refusal.CAPACITY,
        remedy="several locations together pay for it, but too few GPUs are free there; "
        "wait for leases to end",
        asked=request.placement.gpus,
    )
    return _with_trace(short, first.trace, asked)


def _in_own_domains(request: StartRequest) -> StartRequest:
    """Return the request limited to one of the domains that the run already uses (P2)."""
    placement = request.placement
    home = tuple(
        each for each in placement.own_domains if not placement.within or each in placement.within
    )
    # If none of the run's own domains may be used, no domain may: no domain has an empty name.
    return replace(
        request, placement=replace(placement, within=home or ("",), own_domains=(), spread=False)
    )


def _covers(
    world: World, request: StartRequest, locations: list[Location], start: Instant, now: Instant
) -> list[tuple[Location, Covered | Refused]]:
    """Return the payers, or the refusal, for each location.

    If the same envelopes pay in several locations, payers are looked for once.
    """
    found: list[tuple[Location, Covered | Refused]] = []
    by_payers: dict[tuple[bool, ...], Covered | Refused] = {}
    for location in locations:
        payers = paid_here(world, request.placement.flavor, location)
        known = by_payers.get(payers)
        if known is None:
            ask = funding_request_for(
                request,
                location,
                request.placement.gpus,
                start=start,
                borrowed=request.borrowed_already,
            )
            known = by_payers[payers] = cover(world, ask, now=now)
        found.append((location, known))
    return found


def _with_trace(
    refused: Refused, trace: tuple[CoverStep, ...], elsewhere: tuple[EnvelopeKey, ...]
) -> Refused:
    """Return a refusal for lack of place, with the trace of the search for payers and the envelopes
    that were asked in other locations."""
    helps = refused.reason is not Refusal.NO_SUCH_FLAVOR
    return replace(refused, trace=trace, time_may_help=helps, elsewhere=elsewhere)


def _in_one_location(
    world: World, request: StartRequest, funded: list[tuple[Location, Covered]]
) -> Admitted | None:
    """Return a plan with all groups in one location, or None (P4).

    The location with the least borrowed money comes first, then the one with the least shared
    money. `_among_equals` chooses among locations that are equal in both.
    """
    ranked = sorted(funded, key=preference)
    first = ranked[0][1].trace if ranked else ()
    while ranked:
        rank = preference(ranked[0])[:2]
        equals = [each for each in ranked if preference(each)[:2] == rank]
        found = _among_equals(world, request, equals)
        if found is not None:
            return found if len(ranked) == len(funded) else replace(found, first_trace=first)
        ranked = ranked[len(equals) :]
    return None


def _among_equals(
    world: World, request: StartRequest, equals: list[tuple[Location, Covered]]
) -> Admitted | None:
    """Return a plan in one of these locations, whose payers cost the same, or None (P4).

    A location in which one domain holds all groups comes first, then the one with the fewest free
    GPUs left, then the first by name.
    """
    covers = dict(equals)
    # The usual case: one domain holds all groups.
    packed = pack_in_one_domain(world, request.placement, [location for location, _ in equals])
    if packed is not None:
        node = world.fleet.nodes[packed.places[0].node].node
        location = (node.region, node.cluster)
        return Admitted(covered=((location, covers[location]),), packed=packed)
    best: tuple[int, Location, Packed] | None = None
    for location, _ in equals:
        answer = try_pack(world, request.placement, [location])
        if answer is not None:
            left = sum(free for _, free in answer.left_over)
            if best is None or (left, location) < best[:2]:
                best = (left, location, answer)
    if best is None:
        return None
    return Admitted(covered=((best[1], covers[best[1]]),), packed=best[2])


def _group_by_group(
    world: World, request: StartRequest, locations: list[Location], start: Instant, now: Instant
) -> Admitted | None:
    """Place the groups one after the other, each in its best location; None if not all fit (P4).

    Domains that the run already uses come before all others. If a group finds no place, a search
    follows: each group gets the best place that leaves places for the groups after it.

    Example: envelope A pays for one group anywhere, envelope E for one group in east. East and
    west have GPUs for one group each. If A pays for group 0 in east, group 1 finds no payer in
    west. The search puts group 0 in west, where A pays, and group 1 in east, where E pays.
    """
    placing = _GroupPlacement(world, request, locations, start=start, now=now)
    with world.what_if.opened():
        found = placing.place_all_greedily()
    if (
        found is None
        and len(locations) > 1
        and fits(world, _in_any_domain(request.placement), locations)
    ):
        with world.what_if.opened():
            found = placing.place_all_by_search()
    if found is None:
        return None
    parts: dict[Location, list[Covered]] = {}
    for location, covered, _ in found:
        parts.setdefault(location, []).append(covered)
    covered_by = tuple((location, merged(covers)) for location, covers in sorted(parts.items()))
    places = tuple(place for _, _, packed in found for place in packed.places)
    return Admitted(covered=covered_by, packed=Packed(places=places))


_GroupPlace = tuple[Location, Covered, Packed]  # location, payers and places of one group
_PLACES_TRIED_MAX = 256  # limit of the search


class _GroupPlacement:
    """Places the groups of a run one after the other.

    The caller must hold an open what-if.
    """

    def __init__(
        self,
        world: World,
        request: StartRequest,
        locations: list[Location],
        *,
        start: Instant,
        now: Instant,
    ) -> None:
        self._world, self._request = world, request
        self._locations = locations
        self._start, self._now = start, now
        self._borrowed = request.borrowed_already
        self._tries_left = _PLACES_TRIED_MAX
        # how many groups each location held when the groups after them found no place
        self._dead_ends: set[tuple[int, ...]] = set()

    def place_all_greedily(self) -> list[_GroupPlace] | None:
        """Give each group its best place and return the places; None if a group finds none."""
        found: list[_GroupPlace] = []
        for group in self._request.placement.groups:
            chosen = self._best(group, self._locations)
            if chosen is None:
                self._borrowed = self._request.borrowed_already
                return None
            self._occupy(chosen)
            found.append(chosen)
        return found

    def place_all_by_search(self) -> list[_GroupPlace] | None:
        """Give each group the best place that leaves places for the groups after it.

        Returns the places, or None if none were found within the limit.
        """
        return self._place_rest([])

    def _place_rest(self, before: list[_GroupPlace]) -> list[_GroupPlace] | None:
        """Place the groups that follow those in `before`, and return the places of all groups, or
        None.

        If a location leaves no place for the later groups, the next best location is tried.
        """
        groups = self._request.placement.groups
        if len(before) == len(groups):
            return before
        counts = tuple(sum(chosen[0] == each for chosen in before) for each in self._locations)
        if counts in self._dead_ends or self._tries_left <= 0:
            return None
        others = list(self._locations)
        while others:
            self._tries_left -= 1
            chosen = self._best(groups[len(before)], others)
            if chosen is None:
                break
            borrowed = self._borrowed
            with self._world.what_if.opened() as trial:
                self._occupy(chosen)
                found = self._place_rest([*before, chosen])
                if found is not None:
                    trial.keep()
                    return found
            self._borrowed = borrowed
            others.remove(chosen[0])
        self._dead_ends.add(counts)
        return None

    def _best(self, group: int, locations: list[Location]) -> _GroupPlace | None:
        """Return the best place for a group on top of the groups placed so far, or None."""
        return _one_group(
            self._world,
            self._request,
            group,
            locations,
            start=self._start,
            now=self._now,
            borrowed=self._borrowed,
        )

    def _occupy(self, chosen: _GroupPlace) -> None:
        """Take the GPUs and the money of a group's place in the what-if."""
        world, request = self._world, self._request
        claims = claim_on_top(world, request, chosen[1], start=self._start)
        self._borrowed += sum(each.gpus for each in claims if each.borrowed)
        for pod in chosen[2].places:
            world.fleet.plan_pod(pod.node, shape_of(request.placement))


def _in_any_domain(placement: PlacementRequest) -> PlacementRequest:
    """Return the request without a preference for the domains that the run already uses."""
    return replace(placement, own_domains=())


def _one_group(
    world: World,
    request: StartRequest,
    group: int,
    locations: list[Location],
    *,
    start: Instant,
    now: Instant,
    borrowed: int,
) -> tuple[Location, Covered, Packed] | None:
    """Return the best location, payers and places for one group, or None.

    `borrowed`: GPUs that the run borrows already, including those of the groups placed before.
    """
    single = replace(request.placement, groups=(group,))
    alone = StartRequest(run=request.run, placement=single, span=request.span)
    funded = []
    for location in locations:
        ask = funding_request_for(alone, location, single.gpus, start=start, borrowed=borrowed)
        covered = cover(world, ask, now=now)
        if isinstance(covered, Covered):
            funded.append((location, covered))
    found = _in_one_location(world, _in_own_domains(alone), funded) if single.own_domains else None
    if found is None:
        away = replace(alone, placement=_in_any_domain(single))
        found = _in_one_location(world, away, funded)
    if found is None:
        return None
    location, covered = found.covered[0]
    return location, covered, found.packed
