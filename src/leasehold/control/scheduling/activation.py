"""Activation: when a start by preemption is due, preempt for it (A1 to A3, O5).

Runs that are due are activated after the walk over the queue, one at a time in a domain. The
Resolution is recorded before any run is preempted.
"""

from collections.abc import Collection

from msgspec.structs import replace

from leasehold.control.preemption.overdrafts import move_lease
from leasehold.control.preemption.publish import Announced, can_publish, publish_cuts
from leasehold.control.reasons import NoticeReason
from leasehold.control.reservations import block, present
from leasehold.control.scheduling.family import FamilySettlement, take_back
from leasehold.control.scheduling.holds import Hold, ends_at, give_up, groups_held_for, hold_of
from leasehold.control.scheduling.plans import can_pay_held, claims_of_held
from leasehold.control.scheduling.requests import start_request_for
from leasehold.control.scheduling.settling import must_wait
from leasehold.control.turn import Turn
from leasehold.core.admission.order import in_order, is_ahead, place_of
from leasehold.core.calendar.entries import Calendar, Entry, uid_of_run
from leasehold.core.facts import Record, Run
from leasehold.core.preemption.resolve import PlannedSite, Resolved, resolve
from leasehold.core.preemption.site import NodeOffers, money_of
from leasehold.core.requests import StartRequest
from leasehold.core.reservations import HeldMoney, Reservation, State
from leasehold.core.resolutions import CutCause
from leasehold.core.units import FOREVER
from leasehold.core.verdicts import Admitted, Refusal, Refused
from leasehold.core.world.world import World

Places = tuple[tuple[str, int], ...]


class Due(Record):
    """A run whose start by preemption is due, but whose site is not free."""

    request: StartRequest
    reservation: Reservation
    refused: Refused


def activate_due(turn: Turn, due: list[Due]) -> None:
    """Activate due runs in the order of (start, place in the queue).

    After the first activation the others wait for the next turn (A1).
    """
    if not due or must_wait(turn):
        return
    world, whole = turn.world, turn.calendar
    busy = _busy_domains(world)
    for each in sorted(due, key=lambda one: _rank(one)):
        run, domains = each.request.run, each.reservation.domains
        if busy.isdisjoint(domains):
            turn.about = run.uid
            turn.calendar = _holds_and_plans_ahead(whole, world, run)
            changed = _activate(turn, each)
            turn.calendar = whole
            if changed:
                turn.again = True
                return
        busy.update(domains)


def finish_activations(turn: Turn) -> bool:
    """Continue an activation that first took money back from the family: now preempt for GPUs (O5).

    Both steps are one activation. Called before any run is considered. Returns whether something
    was decided, so that the walk is left to the next turn.
    """
    world = turn.world
    for uid in sorted(world.activating):
        run = world.wanted_run(uid)
        hold = hold_of(world, run) if run is not None else None
        if run is None or hold is None or not hold.reservation.is_site:
            continue
        groups = groups_held_for(world, hold, turn.now)
        if not groups or turn.now >= ends_at(world, hold):
            continue
        turn.about = uid
        refused = Refused(reason=Refusal.CAPACITY, remedy="its planned nodes are not free")
        due = Due(
            request=start_request_for(world, run, groups),
            reservation=hold.reservation,
            refused=refused,
        )
        whole, turn.calendar = turn.calendar, _standing_plans(turn, run)
        _activate(turn, due)
        turn.calendar = whole
        turn.again = True
        return True
    return False


def recall_activations(turn: Turn) -> None:
    """Hold again the places of runs whose Resolution is in the ledger, but whose status was lost
    (A4).

    Called in the first turn after a restart. `finish_activations` then finds the place again.
    """
    world = turn.world
    for uid in sorted(uid for uid in world.work.pending if uid in world.reservation_of):
        run = world.wanted_run(uid)
        found = present(world, run) if run is not None else None
        if run is None or found is None or found.state is not State.PENDING:
            continue
        begun = world.resolutions_of_subject(found.subject)
        if begun:
            places, money = found.held_places, found.held_money
            activating(turn, run, found, places, money, is_site=True)


def _standing_plans(turn: Turn, run: Run) -> Calendar:
    """Return a calendar with all holds, and the plans recorded in the reservations of the runs
    ahead.

    Needed before the walk, when no plan has been entered yet.
    """
    world, found = turn.world, turn.calendar.only(turn.world.activating)
    for ahead in in_order(world, world.work.pending):
        reservation = present(world, ahead)
        if (
            reservation is None
            or reservation.state is not State.PENDING
            or not is_ahead(ahead, of=run)
        ):
            continue
        span = ahead.spec.max_duration
        start = max(turn.now, reservation.held_from)
        end = FOREVER if span is None else start + span
        request = start_request_for(world, ahead, (0,))
        found.enter(
            ahead.uid,
            [
                Entry(uid=ahead.uid, node=node, gpus=gpus, start=start, end=end)
                for node, gpus in reservation.held_places
            ],
            claims_of_held(world, request, reservation.held_money, start=start, end=end),
        )
    return found


def _rank(due: Due) -> tuple[object, ...]:
    return due.reservation.held_from, place_of(due.request.run)


def _busy_domains(world: World) -> set[str]:
    """Return the domains of other activations under way (A2)."""
    found: set[str] = set()
    for uid in world.activating:
        run = world.runs.get(uid)
        hold = hold_of(world, run) if run is not None else None
        if hold is not None:
            found.update(hold.reservation.domains)
    return found


def _holds_and_plans_ahead(calendar: Calendar, world: World, run: Run) -> Calendar:
    """Return the part of the calendar that the run respects: holds, and plans of runs ahead."""
    return calendar.only(
        uid
        for uid in calendar.uids
        if (each := uid_of_run(uid)) != run.uid
        and (each in world.activating or is_ahead(world.runs[each], of=run))
    )


def _activate(turn: Turn, due: Due) -> bool:
    """Preempt for one run whose start is due. Returns whether anything was decided."""
    world, request, found = turn.world, due.request, due.reservation
    subject = Announced(found.subject, batch=found.batch, commitment=found.commitment)
    if not can_publish(turn, subject):
        turn.again = True
        return False
    if found.state is State.PENDING and not _is_paid(turn, request, found):
        return _take_back_first(turn, due, subject)
    planned = PlannedSite(domains=found.domains, money=found.held_money)
    answer = resolve(
        world,
        request,
        turn.calendar,
        planned,
        now=turn.now,
        seeder=lambda: subject.seed(turn),
    )
    hold = hold_of(world, request.run)
    is_lost = isinstance(answer, Refused) or bool(answer.cuts.kept)
    if is_lost and hold is not None and _has_cut(hold):
        # This happens to a new leader: the status that named the held place was lost, and the
        # place is not free any more. A second preemption is not allowed.
        give_up(turn, hold, "the place that was held is not free and was not found again")
        return True
    if isinstance(answer, Refused):
        block(turn, request.run, replace(answer, reason=due.refused.reason))
        return True
    if not answer.cuts.kept and found.state is State.PENDING:
        return False  # the run will fit as soon as the ending leases are gone
    if answer.cuts.kept:
        _publish(turn, due, answer, subject)
    hold_plan(turn, request.run, found, answer.plan)
    return True


def _has_cut(hold: Hold) -> bool:
    """Return whether runs were already preempted for GPUs under this announcement, which happens
    once."""
    return any(each.cause is CutCause.RESERVATION for each in hold.resolutions)


def _publish(turn: Turn, due: Due, answer: Resolved, subject: Announced) -> None:
    """Publish the Resolution, with the losses that were compared, and mark its victims (A3)."""
    request, world = due.request, turn.world
    offers = NodeOffers(world, request, turn.calendar, at=turn.now, now=turn.now)
    publish_cuts(
        turn,
        answer.cuts,
        subject,
        cause=CutCause.RESERVATION,
        beneficiary=(request.run.key, request.run.uid),
        resolved=answer,
        domains=due.reservation.domains,
        losses=offers.losses_in(due.reservation.domains),
        flavor=request.placement.flavor,
    )


def _is_paid(turn: Turn, request: StartRequest, found: Reservation) -> bool:
    """Return whether the payers recorded with the site can pay now."""
    world = turn.world
    with world.what_if.opened():
        turn.calendar.respect(world, request.run.uid, request.limit)
        return can_pay_held(turn, request, found.held_money, at=turn.now)


def _take_back_first(turn: Turn, due: Due, subject: Announced) -> bool:
    """Take the owner's envelope back from its family; leave the preemption for GPUs to the next
    turn (O5).

    Returns whether anything was decided. `finish_activations` does the second part.
    """
    request, found = due.request, due.reservation
    taken = take_back(
        turn,
        request,
        seeder=lambda: subject.seed(turn),
        is_paid=lambda: _is_paid(turn, request, found),
    )
    if taken is None:
        return False
    apply_settlement(turn, request, taken, subject)
    activating(turn, request.run, found, found.held_places, found.held_money, is_site=True)
    return True


def apply_settlement(
    turn: Turn, request: StartRequest, taken: FamilySettlement, subject: Announced
) -> None:
    """Carry out a settlement: move leases of the family to other payers, and preempt the rest
    (O5)."""
    for lease, covered in taken.moved:
        move_lease(turn, lease, covered)
    if taken.cuts is not None:
        publish_cuts(
            turn,
            taken.cuts,
            subject,
            cause=CutCause.OVERDRAFT,
            beneficiary=(request.run.key, request.run.uid),
            envelope=taken.envelope,
            deficit=taken.deficit,
        )


def hold_plan(turn: Turn, run: Run, found: Reservation, plan: Admitted) -> None:
    """Hold the places and payers of the plan for the run (A4)."""
    money = tuple(
        each for location, covered in plan.covered for each in money_of(covered, location)
    )
    activating(turn, run, found, plan.packed.gpus_by_node, money, is_site=False)


def activating(
    turn: Turn,
    run: Run,
    found: Reservation,
    places: Places,
    money: tuple[HeldMoney, ...],
    *,
    is_site: bool,
) -> None:
    """Write the reservation as Activating, with the places and payers that are held from now on.

    `is_site`: the places are still the announced site, because only money was taken back so far.
    """
    turn.reserve(
        replace(
            found,
            state=State.ACTIVATING,
            since=found.since if found.state is State.ACTIVATING else turn.now,
            reason="Resolved",
            domains=_domains(turn.world, places) if not is_site else found.domains,
            nodes=tuple(sorted(name for name, _ in places)),
            held_from=turn.now,
            held_places=places,
            held_money=money,
            is_site=is_site,
        )
    )
    turn.tell(
        "Run", run.key, NoticeReason.ACTIVATING, "a Resolution is preempting other runs for it"
    )
    turn.again = True


def _domains(world: World, places: Collection[tuple[str, int]]) -> tuple[str, ...]:
    return tuple(sorted({world.fleet.nodes[name].node.domain for name, _ in places}))
