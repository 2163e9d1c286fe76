"""forecast — when a run will start: the first known instant at which it is funded and placed.

Walks the known future (windows that open, leases whose end is known, planned runs ahead). An
`Outlook` names the instants at which all groups may have room, so that the dear question, cover and
pack on the fleet as it will be then, is asked only there, under a mark.
"""

from bisect import bisect_left
from collections.abc import Iterator
from heapq import heapify, heappop, merge
from itertools import islice

from leasehold.core.decisions.admit import Wish, admit
from leasehold.core.decisions.agenda import Agenda
from leasehold.core.decisions.cover import hour_caps
from leasehold.core.decisions.funded import nobody_pays
from leasehold.core.decisions.outlook import Outlook, leases_ended_by
from leasehold.core.decisions.pack import candidate_pools
from leasehold.core.facts import Envelope, EnvelopeKey, Record, Relation
from leasehold.core.units import FOREVER, Instant
from leasehold.core.verdicts import Admitted, Refused
from leasehold.core.world.width import locations_for
from leasehold.core.world.world import World


class Known(Record):
    """A start that is known: when, and the plan."""

    at: Instant
    plan: Admitted
    window_aligned: bool
    releases: tuple[tuple[Instant, str], ...]  # leases of its nodes that end before it


def forecast(
    world: World,
    wish: Wish,
    agenda: Agenda,
    *,
    outlook: Outlook,
    refused: Refused,
    now: Instant,
    not_before: Instant = 0,
) -> Known | None:
    """The first instant after `now` at which cover and pack both succeed, if one is known.

    `not_before`: for whoever knows that nothing earlier will do."""
    seen = outlook.pods_for(wish.run.uid, wish.end_after)
    pods = {domain: seen[domain] for domain in _domains(world, wish) if seen[domain]}
    fleeting: set[str] = set()
    if wish.span is not None:
        # Room for a run with a limit comes and goes: before a planned start, and after its end.
        fleeting = {domain for domain in pods if seen[domain] is not outlook.pods[domain]}
    others = _Others(world, wish, agenda, outlook=outlook, now=now)
    others.add(_openings(world, wish.want.flavor, now))
    others.add(agenda.ends_of_rooms(now))
    loose = agenda.ends_of_loose()
    others.add(_ends_after(agenda, loose, outlook=outlook))
    others.wait_for(refused)
    lacks_money = refused.reason.is_about_money
    for at in _instants(wish, pods, fleeting, others, max(now, not_before - 1)):
        world.steps.take()
        if at in loose:
            continue  # nothing is known to end then
        unpaid = nobody_pays(world, wish, agenda, at=at, now=now) if lacks_money else None
        if unpaid is not None:
            others.wait_for(unpaid)
            continue
        mark = world.what_if.mark()
        ended = _ended(world, wish, pods, at, now)
        for name in ended:
            world.fleet.give(world.leases[name])
        plan = admit(world, wish, agenda, start=at, now=now, gone=frozenset(ended))
        world.what_if.undo(mark)
        if isinstance(plan, Admitted):
            return _known(world, at, plan, now)
        others.wait_for(plan)
        lacks_money = plan.reason.is_about_money
    return None


def _domains(world: World, wish: Wish) -> list[str]:
    pools = candidate_pools(world.fleet, wish.want, locations_for(world, wish.run.spec))
    return [pool.domain for pool in pools]


def _instants(
    wish: Wish,
    pods: dict[str, list[Instant]],
    fleeting: set[str],
    others: "_Others",
    now: Instant,
) -> Iterator[Instant]:
    """Instants at which the run may have room and something has just changed, in order. Where room
    is `fleeting` there may be less of it than was counted, until more comes."""
    want = wish.want
    per_group = want.pods + want.spares
    groups = len(want.groups)
    # The first instant with room for n groups is the n-th of all groups' instants, if they may be
    # in several domains. They are merged lazily: there may be tens of thousands, and the first few
    # decide.
    least, step = (per_group, per_group) if want.spread else (per_group * groups, 1)
    room: Iterator[Instant] = islice(
        merge(*(times[least - 1 :: step] for times in pods.values())),
        groups - 1 if want.spread else 0,
        None,
    )
    first = next(room, None)
    if first is None:
        return
    if fleeting:
        more = (pods[domain] for domain in sorted(fleeting))
        room = merge(room, *(times[max(least - 1, bisect_left(times, first)) :] for times in more))
    last = now
    for at in others.between(merge([first], room), first):
        if last < at < FOREVER:
            last = at
            yield at


def _ended(
    world: World, wish: Wish, pods: dict[str, list[Instant]], at: Instant, now: Instant
) -> list[str]:
    """Leases that have ended by then, in those domains that then have room for a group.

    Domains without room are of no interest to pack, and there may be hundreds of them.
    """
    per_group = wish.want.pods + wish.want.spares
    nodes = [
        name
        for domain, times in sorted(pods.items())
        if len(times) >= per_group and times[per_group - 1] <= at
        for name in world.fleet.pools[(wish.want.flavor, domain)].nodes
    ]
    return leases_ended_by(world, nodes, at, now)


def _known(world: World, at: Instant, plan: Admitted, now: Instant) -> Known:
    """It is for the window if one that pays opens then; a stranger's is nothing to it."""
    payers = {segment.envelope for _, covered in plan.covered for segment in covered.segments}
    aligned = any(world.envelopes[key].start == at for key in payers)
    nodes = sorted({each.node for each in plan.packed.places})
    freed = sorted(
        (world.terms[name].frees_at, name) for name in leases_ended_by(world, nodes, at, now)
    )
    return Known(at=at, plan=plan, window_aligned=aligned, releases=tuple(freed))


def _openings(world: World, flavor: str, now: Instant) -> set[Instant]:
    return {
        envelope.start
        for envelope in world.envelopes.values()
        if now < envelope.start and envelope.flavor == flavor
    }


class _Others:
    """Instants at which something else than GPUs comes; more are added while they are walked: who
    would pay today may be spoken for by then, and then others are asked."""

    def __init__(
        self, world: World, wish: Wish, agenda: Agenda, *, outlook: Outlook, now: Instant
    ) -> None:
        self._world, self._wish, self._agenda = world, wish, agenda
        self._outlook, self._now = outlook, now
        self._asked: set[EnvelopeKey] = set()
        self._instants: list[Instant] = []  # a heap

    def add(self, instants: set[Instant]) -> None:
        self._instants += instants
        heapify(self._instants)

    def wait_for(self, refused: Refused) -> None:
        """Whom it asked to pay, also where GPUs were not short: when they may have money again."""
        asked = refused.payers_asked
        if not asked <= self._asked:
            payers = asked - self._asked
            self._asked |= asked
            self.add(_money_instants(self._world, self._agenda, payers, self._now))
            self.add(
                _as_hours_suffice(
                    self._world,
                    self._wish,
                    self._agenda,
                    outlook=self._outlook,
                    payers=payers,
                    now=self._now,
                )
            )

    def between(self, room: Iterator[Instant], first: Instant) -> Iterator[Instant]:
        """With those of `room`, all in order, from the first on."""
        for at in room:
            yield from self._up_to(at, first)
            yield at
        yield from self._up_to(FOREVER, first)

    def _up_to(self, end: Instant, first: Instant) -> Iterator[Instant]:
        while self._instants and self._instants[0] < end:
            at = heappop(self._instants)
            if at >= first:
                yield at


def _money_instants(
    world: World, agenda: Agenda, payers: set[EnvelopeKey], now: Instant
) -> set[Instant]:
    """When these may have money again."""
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
        for claims in agenda.claims.values()
        for claim in claims
        if claim.payer in payers and now < claim.end < FOREVER
    )
    return found


def _as_hours_suffice(
    world: World,
    wish: Wish,
    agenda: Agenda,
    *,
    outlook: Outlook,
    payers: set[EnvelopeKey],
    now: Instant,
) -> set[Instant]:
    """When hours pay for more GPUs than before because less of the window is left, or because a
    planned start has come, up to which they were to last: after each of these instants the first
    end of anything, whoever it belongs to. It may start before that, and is not told so."""
    capped = [
        envelope
        for envelope in (world.envelopes[key] for key in sorted(payers))
        if envelope.caps_hours
    ]
    if not capped:
        return set()
    claims = [claim for claims in agenda.claims.values() for claim in claims]
    found: set[Instant] = set()
    mark = world.what_if.mark()
    agenda.respect(world, wish.run.uid)
    for envelope in capped:
        changes = {each.start for each in claims if each.payer == envelope.key and each.start > now}
        changes.update(_as_its_window_closes(world, wish, envelope, now))
        ends = _ends_after(agenda, changes, outlook=outlook)
        found.update(at for at in ends if at < envelope.end)
    world.what_if.undo(mark)
    return found


def _as_its_window_closes(
    world: World, wish: Wish, envelope: Envelope, now: Instant
) -> Iterator[Instant]:
    """When its hours pay for one GPU more of those that are asked for."""
    horizon = world.policy.accounting_horizon
    span = horizon if wish.span is None else min(wish.span, horizon)
    since = max(now, envelope.end - span)  # until then each GPU costs as much as today
    if not since < envelope.end < FOREVER:
        return
    # Lent or not: one instant too many is only asked in vain.
    caps = hour_caps(world, envelope, relation=Relation.BORROWED, start=envelope.end, now=now)
    for left in [hours.cap - hours.spent for hours in caps]:
        for gpus in range(1, wish.want.gpus + 1):
            at = envelope.end - left // gpus
            if at > since:
                yield at


def _ends_after(agenda: Agenda, instants: set[Instant], *, outlook: Outlook) -> set[Instant]:
    """After each of these instants the first end of a lease that is known, and of a plan."""
    if not instants:
        return set()
    planned = sorted({claim.end for claims in agenda.claims.values() for claim in claims})
    return {
        ends[index]
        for ends in (outlook.ends_of_leases, planned)
        for index in (bisect_left(ends, at) for at in instants)
        if index < len(ends)
    }
