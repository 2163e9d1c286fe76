"""Plans of waiting runs: a known start, a start by preemption, or a wait for money (Q4 to Q7, Q10).

`plan_for` computes a `Plan` from the World, the calendar and the run's reservation. It changes
nothing. A plan that a reservation already has is kept as long as it is possible (Q7).
"""

from collections.abc import Callable

from msgspec.structs import replace

from leasehold.control.reservations import present
from leasehold.control.scheduling.queue_pass import QueuePass
from leasehold.control.turn import Turn
from leasehold.core.admission.admit import as_found_by
from leasehold.core.admission.forecast import Forecast, KnownStart, forecast, is_ever_paid
from leasehold.core.calendar.entries import Entry
from leasehold.core.calendar.outlook import leases_ended_by
from leasehold.core.facts import EnvelopeKey, Record, Relation, Run
from leasehold.core.funding.claims import funding_request_for
from leasehold.core.funding.cover import can_pay, cover
from leasehold.core.funding.funded import why_unpaid
from leasehold.core.policy import CutPolicy
from leasehold.core.preemption.odds import Preview, preview
from leasehold.core.preemption.resolve import PlannedSite
from leasehold.core.preemption.site import (
    NodeOffers,
    Site,
    choose_site,
    money_of,
    protections_ending,
)
from leasehold.core.requests import StartRequest
from leasehold.core.reservations import Confidence, HeldMoney, Reservation, State
from leasehold.core.units import FOREVER, Instant
from leasehold.core.verdicts import Refused
from leasehold.core.world.accounts import Claim
from leasehold.core.world.waiting import wait_of
from leasehold.core.world.world import World

Places = tuple[tuple[str, int], ...]  # node, GPUs


class Plan(Record):
    """A planned start: what the reservation shows, and what the run has on the calendar."""

    starts: Instant
    confidence: Confidence
    state: State = State.PENDING
    by_cuts: Instant = 0  # the announced start by preemption (Q5); 0: none
    by_family: Instant = 0  # the announced start by the family rule (Q6); 0: none
    held_from: Instant = 0  # when places and money are taken on the calendar
    places: Places = ()
    money: tuple[HeldMoney, ...] = ()
    is_site: bool = False  # leases on the places may be preempted
    is_kept: bool = False  # the site is reserved until it comes free, without preemption (Q10)
    asked: frozenset[EnvelopeKey] = frozenset()  # asked to pay, at all instants that were tried
    known: KnownStart | None = None  # set if the start was found in this walk
    preview: Preview | None = None  # set if the site or its odds were computed in this walk

    @property
    def is_due_by_cuts(self) -> bool:
        return self.is_site and not self.is_kept


def plan_for(
    turn: Turn,
    request: StartRequest,
    refused: Refused,
    walk: QueuePass,
    *,
    family: tuple[str, ...] = (),
    is_first: bool,
) -> Plan | None:
    """Return the plan of a run that cannot start now; None if the run gets no plan.

    `refused`: why the run cannot start now.
    `family`: leases of the family that keep the run from starting (Q6).
    `is_first`: the request is for a whole run, or for the groups that a sweep still needs to
    reach its minimum. Each further group of a sweep is planned by Q4 only (G2).
    """
    old = _standing(turn, request.run) if is_first else None
    plan = _plan(turn, request, refused, walk, old=old, family=family, is_first=is_first)
    if not family:
        return plan
    known = old.by_family if old is not None else 0
    by_family = known or turn.now + turn.world.policy.activation_lead
    if plan is None:
        return Plan(starts=by_family, confidence=Confidence.MONEY, by_family=by_family)
    if plan.state is State.BLOCKED or by_family <= plan.starts:
        return replace(
            plan,
            state=State.PENDING,
            starts=by_family,
            confidence=Confidence.MONEY,
            by_family=by_family,
        )
    return plan


def _standing(turn: Turn, run: Run) -> Reservation | None:
    """Return the run's pending reservation, whose plan is kept if possible (Q7), or None."""
    found = present(turn.world, run)
    return found if found is not None and found.state is State.PENDING else None


def _plan(
    turn: Turn,
    request: StartRequest,
    refused: Refused,
    walk: QueuePass,
    *,
    old: Reservation | None,
    family: tuple[str, ...],
    is_first: bool,
) -> Plan | None:
    """Return the plan by Q4, by Q5, or for a run that lacks money (Q6); the family rule is not
    applied.

    Example, submitted at 08:00 with a patience and a `maxWait` of 24 h: a known start tomorrow at
    07:00 is planned (Q4). If the first fit is in three days and the run lacks only GPUs, it gets a
    start by preemption tomorrow at 08:00 (Q5).

    `family`: leases of the family whose money the plan may count on (O5).
    """
    world, now, policy = turn.world, turn.now, turn.world.policy
    since = wait_of(world, request.run).since
    latest = since + policy.reservation_max_wait
    first = since + max(policy.patience, policy.activation_lead)
    may_cut = is_first and not request.run.spec.opportunistic
    by_cuts = old.by_cuts if old is not None else 0
    known, asked = _known_start(turn, request, refused, walk, old)
    is_late = known is not None and may_cut and known.held_from > latest
    if is_late and _is_paid(turn, request, walk, at=max(latest, now)):  # only GPUs are short (Q4)
        known, first = None, max(latest, since + policy.activation_lead)
    if known is not None and (not by_cuts or known.held_from < by_cuts):
        return replace(known, by_cuts=by_cuts, asked=asked)
    if not may_cut:
        return None
    if known is None:
        is_paid, asked_later = _is_paid_some_time(turn, request, walk, family)
        asked |= asked_later
        if not is_paid:
            return replace(_short_of_money(turn, request, walk, first), asked=asked)
    by_preemption = _by_cuts(turn, request, walk, old=old, family=family, first=first)
    return replace(by_preemption, asked=asked)


def _is_paid(turn: Turn, request: StartRequest, walk: QueuePass, *, at: Instant) -> bool:
    """Return whether the run would have payers at `at` in any place where it fits on an empty
    fleet."""
    unpaid = why_unpaid(
        turn.world,
        request,
        turn.calendar,
        at=at,
        now=turn.now,
        rooms=walk.could_hold(turn, request),
    )
    return unpaid is None


def _is_paid_some_time(
    turn: Turn, request: StartRequest, walk: QueuePass, family: tuple[str, ...]
) -> tuple[bool, frozenset[EnvelopeKey]]:
    """Return whether the run has payers at some known instant, and the envelopes that were
    asked."""
    return is_ever_paid(
        turn.world,
        request,
        turn.calendar,
        outlook=walk.outlook_for(turn, request),
        now=turn.now,
        rooms=walk.could_hold(turn, request),
        returned=family,
    )


# Q4: a known start.


def _known_start(
    turn: Turn, request: StartRequest, refused: Refused, walk: QueuePass, old: Reservation | None
) -> tuple[Plan | None, frozenset[EnvelopeKey]]:
    """Return the plan for the first known instant at which the run fits, or None (Q4).

    Also returns the envelopes that were asked to pay.
    `old`: the run's reservation. Its known start is kept if it is still possible and no earlier
    start is known (Q7).
    """
    world, run = turn.world, request.run
    stands = old is not None and _stands(turn, request, old)
    not_after = old.held_from if stands and old is not None else FOREVER
    not_before, asked = walk.not_before(turn, run)
    found = Forecast(known=None)
    if not_before < not_after:
        found = forecast(
            world,
            request,
            turn.calendar,
            outlook=walk.outlook_for(turn, request),
            refused=refused,
            now=turn.now,
            not_before=not_before,
            not_after=not_after,
        )
    known, asked = found.known, asked | found.asked
    walk.note_start(turn, run, known.at if known else max(not_before, not_after), asked)
    if known is not None:
        plan = Plan(
            starts=known.at,
            confidence=Confidence.WINDOW if known.window_aligned else Confidence.EXACT,
            held_from=known.at,
            places=known.plan.packed.gpus_by_node,
            money=tuple(
                held
                for location, covered in known.plan.covered
                for held in money_of(covered, location)
            ),
            known=known,
        )
        return plan, asked
    if not stands or old is None:
        return None, asked
    plan = Plan(
        starts=old.held_from,
        confidence=_alignment(world, old.held_money, old.held_from),
        held_from=old.held_from,
        places=old.held_places,
        money=old.held_money,
    )
    return plan, asked


def _alignment(world: World, money: tuple[HeldMoney, ...], at: Instant) -> Confidence:
    """Return `window-aligned` if a payer's window opens at `at`, otherwise `exact` (Q4)."""
    opens = any(world.envelopes[each.payer].start == at for each in money)
    return Confidence.WINDOW if opens else Confidence.EXACT


def _stands(turn: Turn, request: StartRequest, old: Reservation) -> bool:
    """Return whether the known start of a reservation is still possible (Q7)."""
    if old.is_site or old.held_from <= turn.now or not _is_whole(request, old.held_places):
        return False
    return is_possible(turn, request, old.held_places, old.held_money, at=old.held_from)


def _is_whole(request: StartRequest, places: Places) -> bool:
    """Return whether the places have as many GPUs as the request needs now."""
    return sum(gpus for _, gpus in places) == request.placement.gpus


def is_possible(
    turn: Turn, request: StartRequest, places: Places, money: tuple[HeldMoney, ...], *, at: Instant
) -> bool:
    """Return whether the run can start at `at` in these places with these payers.

    Leases on the places that are known to end by `at` count as gone.
    """
    world, now = turn.world, turn.now
    with world.what_if.opened():
        ended = leases_ended_by(world, [name for name, _ in places], at, now) if at > now else []
        for name in ended:
            world.fleet.give(world.leases[name])
        as_found_by(world, request, turn.calendar, start=at, gone=frozenset(ended))
        nodes = world.fleet.nodes
        if not all(name in nodes and nodes[name].free >= gpus for name, gpus in places):
            return False
        return can_pay_held(turn, request, money, at=at)


def can_pay_held(
    turn: Turn, request: StartRequest, money: tuple[HeldMoney, ...], *, at: Instant
) -> bool:
    """Return whether exactly these payers can pay for a start at `at`.

    The caller must hold an open what-if in which claims that the run must respect count as used.
    """
    ask = funding_request_for(
        request, ("", ""), request.placement.gpus, start=at, borrowed=request.borrowed_already
    )
    return can_pay(turn.world, ask, money, now=turn.now)


# Q6: no payers.


def _short_of_money(turn: Turn, request: StartRequest, walk: QueuePass, first: Instant) -> Plan:
    """Return the plan of a run without payers: from `first` (T0) on it claims free money (Q6)."""
    money = _claimable(turn, request, walk) if turn.now >= first else ()
    since = turn.now if money else 0
    return Plan(starts=first, confidence=Confidence.MONEY, held_from=since, money=money)


def _claimable(turn: Turn, request: StartRequest, walk: QueuePass) -> tuple[HeldMoney, ...]:
    """Return the free money that the run may claim now, in payer order.

    It is that of one location: the one in which the fewest GPUs would still lack a payer. Only
    locations count that could hold the run if they were empty.
    """
    world, now = turn.world, turn.now
    best: tuple[int, tuple[HeldMoney, ...]] | None = None
    with world.what_if.opened():
        turn.calendar.respect(world, request.run.uid, request.limit)
        for location in walk.could_hold(turn, request):
            ask = funding_request_for(
                request,
                location,
                request.placement.gpus,
                start=now,
                borrowed=request.borrowed_already,
            )
            answer = cover(world, ask, now=now)
            taken = [step for step in answer.trace if step.taken]
            missing = request.placement.gpus - sum(step.taken for step in taken)
            if best is None or missing < best[0]:
                best = (
                    missing,
                    tuple(
                        HeldMoney(
                            payer=s.envelope, gpus=s.taken, relation=s.relation, location=location
                        )
                        for s in taken
                    ),
                )
    return best[1] if best is not None else ()


# Q5, Q7: a start by cuts.


def _by_cuts(
    turn: Turn,
    request: StartRequest,
    walk: QueuePass,
    *,
    old: Reservation | None,
    family: tuple[str, ...],
    first: Instant,
) -> Plan:
    """Return a start by preemption (Q5), or a plan that waits for its notice or is Blocked (Q11).

    - Before the notice the plan holds nothing.
    - Once the start is announced, the plan keeps the same site. If that is impossible, it takes
      another site in the same domains for the same T (Q7).
    - Otherwise the plan is for the first instant with payers and a site.

    `first`: T0, the earliest time at which other runs may be preempted for the run.
    """
    world, now, lead = turn.world, turn.now, turn.world.policy.activation_lead
    waits = Plan(starts=first, confidence=Confidence.CUTS)
    if world.policy.cuts is not CutPolicy.LOTTERY:
        return _kept_site(turn, request, walk, old, waits)
    announced = old.by_cuts if old is not None else 0
    if not announced and now < first - lead:
        return waits
    if _waits_for_victims(world, request.run):
        return replace(waits, state=State.BLOCKED)  # preempt nothing more for the run (A4)
    if announced and old is not None:
        at = max(announced, now)
        if _site_stands(turn, request, old, at=at, returned=family):
            kept = Site(places=old.held_places, money=old.held_money, domains=old.domains)
            plan = _on_site(kept, starts=announced)
            is_foreseen = bool(old.odds) or request.run.uid in world.memory.foreseen
            if is_foreseen or not walk.may_sample(turn):
                return plan
            return replace(plan, preview=_preview(turn, request, kept, announced, lambda: True))
        within = old.domains if old.is_site else ()
        site = _choose(turn, request, at, returned=family, within=within)
        if site is not None:
            return _on(turn, request, site, walk, starts=announced)
    first = max(first, now + lead)
    later = set(protections_ending(world, first))
    later.update(at for at in _instants(turn, request) if at > first)
    for at in (first, *sorted(later)):
        site = _choose(turn, request, at, returned=family)
        if site is not None:
            return _on(turn, request, site, walk, starts=at)
    return replace(waits, state=State.BLOCKED)


def _choose(
    turn: Turn,
    request: StartRequest,
    at: Instant,
    *,
    returned: tuple[str, ...],
    within: tuple[str, ...] = (),
) -> Site | None:
    """Return a site for a start at `at`, or None. `within`: only these domains, if any."""
    return choose_site(
        turn.world, request, turn.calendar, at=at, now=turn.now, within=within, returned=returned
    )


def _on(turn: Turn, request: StartRequest, site: Site, walk: QueuePass, *, starts: Instant) -> Plan:
    """Return the plan of a start by preemption on this site, with its odds."""
    seen = _preview(turn, request, site, starts, lambda: walk.may_sample(turn))
    return replace(_on_site(site, starts=starts), preview=seen)


def _preview(
    turn: Turn, request: StartRequest, site: Site, starts: Instant, may_sample: Callable[[], bool]
) -> Preview:
    """Return what the preemption on the site would take, and the odds of the lottery."""
    planned, now = PlannedSite(domains=site.domains, money=site.money), turn.now
    return preview(
        turn.world,
        request,
        turn.calendar,
        planned,
        at=max(starts, now),
        now=now,
        may_sample=may_sample,
    )


def _on_site(site: Site, *, starts: Instant) -> Plan:
    """Return the plan of a start by preemption on this site, without odds."""
    return Plan(
        starts=starts,
        confidence=Confidence.CUTS,
        by_cuts=starts,
        held_from=starts,
        places=site.places,
        money=site.money,
        is_site=True,
    )


def _instants(turn: Turn, request: StartRequest) -> set[Instant]:
    """Return the instants to try for a site: ends of leases and entries, openings of windows
    (Q5)."""
    world, now = turn.world, turn.now
    found = {term.frees_at for term in world.terms.values() if now < term.frees_at < FOREVER}
    found.update(at for at in turn.calendar.ends if at > now)
    found.update(
        envelope.start
        for envelope in world.envelopes.values()
        if envelope.flavor == request.placement.flavor and envelope.start > now
    )
    return found


def _waits_for_victims(world: World, run: Run) -> bool:
    """Return whether a victim of the run's last Resolution still has an open lease (A4)."""
    name = world.resolution_for.get(run.uid)
    victims = world.resolutions[name].victims if name is not None else ()
    return any(world.leases[each].is_open for each in victims if each in world.leases)


def _site_stands(
    turn: Turn, request: StartRequest, old: Reservation, *, at: Instant, returned: tuple[str, ...]
) -> bool:
    """Return whether the places in a reservation are still a site, and its payers can pay (Q7)."""
    if not old.is_site or not _is_whole(request, old.held_places):
        return False
    world, now = turn.world, turn.now
    with world.what_if.opened():
        world.fleet.tolerate(request.run.spec.tolerations)
        turn.calendar.respect(world, request.run.uid, request.limit)
        for name in returned:
            world.accounts.end(world.leases[name], world.terms[name], at=now)
        if not can_pay_held(turn, request, old.held_money, at=at):
            return False
        return NodeOffers(world, request, turn.calendar, at=at, now=now).holds(old.held_places)


def _kept_site(
    turn: Turn, request: StartRequest, walk: QueuePass, old: Reservation | None, waits: Plan
) -> Plan:
    """Return the plan of a run while the policy forbids preemption for GPUs (Q10).

    From T0 on the run reserves its site until the site comes free, if no run ahead has reserved a
    site in the same domains. `waits`: the plan that holds nothing.
    """
    world, now = turn.world, turn.now
    if now < waits.starts:
        return waits
    places: Places = ()
    money: tuple[HeldMoney, ...] = ()
    if old is not None and _site_stands(turn, request, old, at=now, returned=()):
        places, money = old.held_places, old.held_money
    elif (site := _choose(turn, request, now, returned=())) is not None:
        places, money = site.places, site.money
    nodes = world.fleet.nodes
    domains = {nodes[name].node.domain for name, _ in places}
    if not places or domains & walk.kept_domains:
        return waits
    walk.kept_domains |= domains
    return replace(waits, held_from=now, places=places, money=money, is_site=True, is_kept=True)


# On the calendar.


def enter(turn: Turn, request: StartRequest, plan: Plan) -> None:
    """Enter a plan on the calendar, so that the runs behind leave its GPUs and money free.

    A known start that is more than `reservation.maxWait` away is not entered until it is nearer
    (Q4).
    """
    world, now, uid = turn.world, turn.now, request.run.uid
    start = max(now, plan.held_from)
    is_known = not plan.is_site and plan.places
    if is_known and start - now > world.policy.reservation_max_wait:
        turn.wake(start - world.policy.reservation_max_wait)
        return
    # The entry ends at the limit, as the known end of a running lease does. The grace period counts
    # only for a run that passes a plan ahead (`request.in_the_way` in `admit`, Q8).
    end = min(FOREVER, start + request.end_after)
    turn.calendar.enter(
        uid,
        [Entry(uid=uid, node=node, gpus=gpus, start=start, end=end) for node, gpus in plan.places],
        claims_of_held(world, request, plan.money, start=start, end=end),
        passable_by=world.policy.patience if plan.is_kept else None,
    )


def claims_of_held(
    world: World,
    request: StartRequest,
    money: tuple[HeldMoney, ...],
    *,
    start: Instant,
    end: Instant,
) -> list[Claim]:
    """Return what a plan or hold claims of its payers, from `start` to `end`."""
    span = world.policy.accounting_horizon if request.span is None else request.span
    return [
        Claim(
            uid=request.run.uid,
            payer=each.payer,
            start=start,
            end=end,
            gpus=each.gpus,
            borrowed=each.relation is Relation.BORROWED,
            gpu_ms=each.gpus * max(0, min(start + span, world.envelopes[each.payer].end) - start),
        )
        for each in money
        if each.payer in world.envelopes and each.gpus
    ]
