"""forecast: find the first known instant at which a run has payers and fits (Q4).

The known future consists of windows that open, leases with a known end, and entries of the
calendar. Payers and places at a future instant are expensive to find: the fleet of that instant is
built in a what-if. So an `Outlook` names the instants at which all groups may fit, and only those
are tried, together with the instants at which money may come free.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterator, Mapping
from heapq import heappop, heappush, heapreplace, merge
from itertools import chain, count, islice

from leasehold.core.admission.admit import admit
from leasehold.core.calendar.entries import Calendar
from leasehold.core.calendar.outlook import Outlook, leases_ended_by
from leasehold.core.facts import EnvelopeKey, Location, Record
from leasehold.core.funding.funded import why_unpaid
from leasehold.core.funding.hours import has_ample_hours
from leasehold.core.placement.pack import candidate_pools
from leasehold.core.requests import StartRequest
from leasehold.core.units import FOREVER, Instant
from leasehold.core.verdicts import Admitted, Refused
from leasehold.core.world.width import locations_for
from leasehold.core.world.world import World


class KnownStart(Record):
    """The first instant at which a run fits, with its payers and places at that instant."""

    at: Instant
    plan: Admitted
    window_aligned: bool  # the window of a paying envelope opens at `at`
    releases: tuple[tuple[Instant, str], ...]  # (end, lease): leases on its nodes that end by `at`


class Forecast(Record):
    """The result of `forecast`: the known start, or None, and every envelope that was asked to
    pay."""

    known: KnownStart | None
    asked: frozenset[EnvelopeKey] = frozenset()


def forecast(
    world: World,
    request: StartRequest,
    calendar: Calendar,
    *,
    outlook: Outlook,
    refused: Refused,
    now: Instant,
    not_before: Instant = 0,
    not_after: Instant = FOREVER,
) -> Forecast:
    """Return the first instant after `now` at which the run has payers and fits, if one is known.

    `refused`: why the run cannot start now.
    Only instants in [`not_before`, `not_after`) are tried.
    """
    seen = outlook.pods_for(request.run.uid, request.in_the_way, request.limit)
    least = _pods_at_once(request)
    pods = {
        domain: times
        for domain in _domains(world, request)
        if len(times := seen[domain]) >= least and times[least - 1] < not_after
    }
    fleeting: set[str] = set()
    if request.span is not None:
        # A run with a limit may fit before a planned start and again after its end. In domains
        # without entries, GPUs that came free stay free.
        fleeting = {domain for domain in pods if seen[domain] is not outlook.pods[domain]}
    room = _instants_with_room(request, pods, fleeting)
    first = next(room, None)
    if first is None:
        return Forecast(known=None)
    others = _OtherInstants(world, request, calendar, outlook=outlook, first=first, now=now)
    others.watch_payers(refused)
    lacks_money = refused.reason.is_about_money
    last = max(now, not_before - 1)
    for at in others.merged_with(chain((first,), room)):
        if at >= not_after:
            break
        if at <= last:
            continue
        last = at
        world.steps.take()
        unpaid = why_unpaid(world, request, calendar, at=at, now=now) if lacks_money else None
        if unpaid is not None:
            others.watch_payers(unpaid)
            continue
        with world.what_if.opened():
            ended = _ended(world, request, pods, at, now)
            for name in ended:
                world.fleet.give(world.leases[name])
            plan = admit(world, request, calendar, start=at, now=now, gone=frozenset(ended))
        if isinstance(plan, Admitted):
            return Forecast(known=_known(world, at, plan, now), asked=others.asked)
        others.watch_payers(plan)
        lacks_money = plan.reason.is_about_money
    return Forecast(known=None, asked=others.asked)


def is_ever_paid(
    world: World,
    request: StartRequest,
    calendar: Calendar,
    *,
    outlook: Outlook,
    now: Instant,
    rooms: Mapping[Location, int],
    returned: Collection[str] = (),
) -> tuple[bool, frozenset[EnvelopeKey]]:
    """Return whether the run has payers now or at a known instant, and the envelopes that were
    asked.

    Whether nodes have free GPUs at that instant does not matter.
    `rooms`: location -> number of the run's groups that the location could hold if it were empty.
    `returned`: leases whose money counts as free.
    """
    others = _OtherInstants(world, request, calendar, outlook=outlook, first=now, now=now)
    last = now - 1
    for at in chain((now,), others.merged_with(iter(()))):
        if not last < at < FOREVER:
            continue
        last = at
        unpaid = why_unpaid(
            world, request, calendar, at=at, now=now, rooms=rooms, returned=returned
        )
        if unpaid is None:
            return True, others.asked
        others.watch_payers(unpaid)
    return False, others.asked


def _domains(world: World, request: StartRequest) -> list[str]:
    """Return the domains that the run may use."""
    pools = candidate_pools(world.fleet, request.placement, locations_for(world, request.run.spec))
    return [pool.domain for pool in pools]


def _pods_at_once(request: StartRequest) -> int:
    """Return how many pods must fit into one domain at a time.

    These are the pods of one group, or of all groups if they may not spread.
    """
    placement = request.placement
    return (placement.pods + placement.spares) * (1 if placement.spread else len(placement.groups))


def _instants_with_room(
    request: StartRequest, pods: dict[str, list[Instant]], fleeting: set[str]
) -> Iterator[Instant]:
    """Yield the instants at which the run may fit, in order.

    `pods`: domain -> sorted instants from which one more pod fits.
    `fleeting`: domains in which a planned start may take free GPUs again. In such a domain, fewer
    pods may fit at an instant than were counted, so each later instant is tried, too.

    Example: 2 groups of 2 pods that may spread, domain a [NOW, NOW, 5, 9], domain b [3, 4]. A first
    group fits from NOW on (a), a second from 4 on (b), a third from 9 on (a). So both groups fit
    from 4 on.
    """
    placement, least, groups = (
        request.placement,
        _pods_at_once(request),
        len(request.placement.groups),
    )
    # The instants are merged lazily, because there may be tens of thousands and the first few
    # decide.
    step = least if placement.spread else 1
    room: Iterator[Instant] = islice(
        merge(*(times[least - 1 :: step] for times in pods.values())),
        groups - 1 if placement.spread else 0,
        None,
    )
    first = next(room, None)
    if first is None:
        return
    yield first
    if fleeting:
        more = (pods[domain] for domain in sorted(fleeting))
        room = merge(room, *(times[max(least - 1, bisect_left(times, first)) :] for times in more))
    yield from room


def _ended(
    world: World, request: StartRequest, pods: dict[str, list[Instant]], at: Instant, now: Instant
) -> list[str]:
    """Return the leases that will have ended by `at`, in the domains in which a group fits by then.

    The other domains, perhaps hundreds, cannot hold the run and need not be looked at.
    """
    per_group = request.placement.pods + request.placement.spares
    nodes = [
        name
        for domain, times in sorted(pods.items())
        if len(times) >= per_group and times[per_group - 1] <= at
        for name in world.fleet.pools[(request.placement.flavor, domain)].nodes
    ]
    return leases_ended_by(world, nodes, at, now)


def _known(world: World, at: Instant, plan: Admitted, now: Instant) -> KnownStart:
    """Return the known start for a plan.

    The start is window-aligned if the window of an envelope that pays for it opens at `at`.
    """
    payers = {segment.envelope for _, covered in plan.covered for segment in covered.segments}
    aligned = any(world.envelopes[key].start == at for key in payers)
    nodes = sorted({each.node for each in plan.packed.places})
    freed = sorted(
        (world.terms[name].frees_at, name) for name in leases_ended_by(world, nodes, at, now)
    )
    return KnownStart(at=at, plan=plan, window_aligned=aligned, releases=tuple(freed))


def _openings(world: World, flavor: str, now: Instant) -> set[Instant]:
    """Return the instants after `now` at which windows of envelopes of this flavor open."""
    return {
        envelope.start
        for envelope in world.envelopes.values()
        if now < envelope.start and envelope.flavor == flavor
    }


class _OtherInstants:
    """Yields, in order, the instants at which payers may be found: a window opens, or money comes
    free.

    `watch_payers` adds more instants meanwhile. Example: an envelope that would pay today has no
    money left at a later instant. Then the next envelope in payer order is asked, and the instants
    at which that one may have money are added.
    """

    def __init__(
        self,
        world: World,
        request: StartRequest,
        calendar: Calendar,
        *,
        outlook: Outlook,
        first: Instant,
        now: Instant,
    ) -> None:
        """Begin with the openings of windows. Instants before `first` are never yielded."""
        self._world, self._request, self._calendar = world, request, calendar
        self._outlook, self._first, self._now = outlook, first, now
        self._asked: set[EnvelopeKey] = set()
        self._heap: list[tuple[Instant, int, Iterator[Instant]]] = []  # the next of each source
        self._sources = count()
        self._add(iter(sorted(_openings(world, request.placement.flavor, now))))

    @property
    def asked(self) -> frozenset[EnvelopeKey]:
        return frozenset(self._asked)

    def _add(self, instants: Iterator[Instant]) -> None:
        for at in instants:
            if at >= self._first:
                heappush(self._heap, (at, next(self._sources), instants))
                return

    def watch_payers(self, refused: Refused) -> None:
        """Add the instants at which envelopes that the refusal names may have money again."""
        payers = refused.payers_asked - self._asked
        if payers:
            self._asked |= payers
            self._add(iter(sorted(_money_instants(self._world, self._calendar, payers, self._now))))
            for key in sorted(payers):
                self._add_cheaper_hours(key)

    def _add_cheaper_hours(self, key: EnvelopeKey) -> None:
        """Add the instants at which a start would need fewer GPU-hours from an envelope (C5).

        These are ends of leases and calendar entries. A start needs fewer hours if less of the
        window is left. A run without a limit must be paid for up to the last planned start, so it
        also needs fewer hours the nearer that start is.
        """
        world, span = self._world, self._request.span
        envelope = world.envelopes[key]
        if has_ample_hours(world, self._request, key, now=self._now):
            return
        length = world.policy.accounting_horizon if span is None else span
        if envelope.end < FOREVER:
            self._add(self._ends_between(envelope.end - length, envelope.end))
        if span is None:
            planned = self._calendar.last_start(key)
            if not planned:
                return
            after = next(self._ends_between(planned - 1, FOREVER), FOREVER)
            if after < envelope.end:
                self._add(iter((after,)))
            self._add(self._ends_between(self._now, min(planned, envelope.end)))

    def _ends_between(self, after: Instant, before: Instant) -> Iterator[Instant]:
        """Yield the known ends of leases and calendar entries in (after, before), in order.

        Ends up to now and ends before the first instant to try are left out.
        """
        after = max(after, self._now, self._first - 1)
        if before <= after:
            return iter(())
        leases, entries = self._outlook.ends_of_leases, self._calendar.ends
        both = (
            islice(ends, bisect_right(ends, after), bisect_left(ends, before))
            for ends in (leases, entries)
        )
        return merge(*both)

    def merged_with(self, room: Iterator[Instant]) -> Iterator[Instant]:
        """Yield the instants of this object and those of `room`, merged in order."""
        for at in room:
            yield from self._up_to(at)
            yield at
        yield from self._up_to(FOREVER)

    def _up_to(self, end: Instant) -> Iterator[Instant]:
        """Yield this object's instants before `end`, in order."""
        while self._heap and self._heap[0][0] < end:
            at, source, instants = self._heap[0]
            following = next(instants, None)
            if following is None:
                heappop(self._heap)
            else:
                heapreplace(self._heap, (following, source, instants))
            yield at


def _money_instants(
    world: World, calendar: Calendar, payers: set[EnvelopeKey], now: Instant
) -> set[Instant]:
    """Return the instants at which these envelopes may have money again.

    These are the known ends of leases and claims, of these envelopes and of other envelopes under
    the same aggregate cap.
    """
    payers = set(payers)
    for key in sorted(payers):
        for aggregate in world.aggregates.get(key, ()):
            payers.update(aggregate.members)
    found = {
        term.frees_at
        for payer in sorted(payers)
        for term in world.accounts.of(payer).terms
        if now < term.frees_at < FOREVER
    }
    found.update(
        claim.end
        for claims in calendar.claims.values()
        for claim in claims
        if claim.payer in payers and now < claim.end < FOREVER
    )
    return found
