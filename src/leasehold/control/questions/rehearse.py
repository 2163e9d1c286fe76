"""Rehearses what the queue would decide about a run now: considers the runs ahead, then the run
itself.

No decision is applied. What each run would get is entered on the calendar of a turn that is thrown
away. Called by `plan` and `cover`.
"""

from typing import assert_never

from msgspec.structs import replace

from leasehold.control.reservations import announced, present
from leasehold.control.scheduling.consider import (
    Denied,
    InQueue,
    Planned,
    Postponed,
    Started,
    StartsByFamilyRule,
    Verdict,
    WaitsForHold,
    consider,
)
from leasehold.control.scheduling.holds import enter_holds
from leasehold.control.scheduling.plans import Plan
from leasehold.control.scheduling.queue import reservation_for
from leasehold.control.scheduling.queue_pass import QueuePass, refused_with_place
from leasehold.control.turn import Turn
from leasehold.core.admission.order import in_order, is_ahead
from leasehold.core.calendar.entries import Entry, uid_beside
from leasehold.core.facts import Record, Run
from leasehold.core.funding.claims import claims_of
from leasehold.core.preemption.odds import Preview, preview
from leasehold.core.preemption.resolve import PlannedSite
from leasehold.core.requests import StartRequest
from leasehold.core.reservations import Reservation
from leasehold.core.units import FOREVER, Instant
from leasehold.core.verdicts import Admitted, Refusal, Refused
from leasehold.core.world.world import World


class Rehearsed(Record):
    """What the queue would decide about a run now; empty fields do not apply."""

    started: tuple[Admitted, ...] = ()  # starting now: the whole run, or groups of a sweep
    groups_waiting: int = 0
    refused: Refused | None = None
    reservation: Reservation | None = None
    preview: Preview | None = None


def in_front_of(world: World, run: Run, now: Instant) -> tuple[Turn, QueuePass]:
    """Return the turn and the queue pass in the state in which the queue reaches this run."""
    turn = Turn(world, now=max(now, world.head.instant), key=b"", time_trusted=True)
    turn.quarantined = frozenset(
        uid
        for uid, refused in world.memory.refusals.items()
        if refused.reason is Refusal.QUARANTINED
    )
    walk = QueuePass(world.policy, is_rehearsal=True)
    enter_holds(turn)
    for ahead in in_order(world, world.work.pending):
        if ahead.uid == run.uid or not is_ahead(ahead, of=run):
            break
        _considered(turn, ahead, walk)  # enters on the calendar what the run would get
    return turn, walk


def _considered(turn: Turn, run: Run, walk: QueuePass) -> tuple[list[Started], Verdict | None]:
    """Consider a run; return its groups that would start, and the verdict on the rest.

    What would start is entered on the calendar, so that the runs behind do not use it.
    """
    started: list[Started] = []
    begun = 0
    verdict = consider(turn, run, walk)
    while isinstance(verdict, Started):
        started.append(verdict)
        turn.calendar.forget(run.uid)
        # Entered under another uid, because it must also count for the run's own other groups.
        beside = replace(run, uid=uid_beside(run.uid, verdict.request.placement.groups[0]))
        _keep(turn, replace(verdict.request, run=beside), verdict.plan)
        if not verdict.left:
            return started, None
        begun += len(verdict.request.placement.groups)
        verdict = consider(turn, run, walk, left=verdict.left, begun=begun)
    return started, verdict


def _keep(turn: Turn, request: StartRequest, plan: Admitted) -> None:
    """Enter the places and money of a start on the calendar, so that the runs behind do not use
    them."""
    uid, end = request.run.uid, min(FOREVER, turn.now + request.end_after)
    turn.calendar.enter(
        uid,
        [
            Entry(uid=uid, node=node, gpus=gpus, start=turn.now, end=end)
            for node, gpus in plan.packed.gpus_by_node
        ],
        [
            claim
            for _, covered in plan.covered
            for claim in claims_of(turn.world, request, covered, start=turn.now)
        ],
    )


def rehearse(world: World, run: Run, now: Instant) -> tuple[Turn, Rehearsed]:
    """Return what the queue would decide about a waiting or hypothetical run."""
    turn, walk = in_front_of(world, run, now)
    started, verdict = _considered(turn, run, walk)
    plans = tuple(each.plan for each in started)
    if verdict is None:
        return turn, Rehearsed(
            started=plans, refused=None if plans else world.memory.refusals.get(run.uid)
        )
    waiting = len(started[-1].left) if started else 0
    return turn, replace(_outcome(turn, run, verdict), started=plans, groups_waiting=waiting)


def _outcome(turn: Turn, run: Run, verdict: Verdict) -> Rehearsed:
    match verdict:
        case Planned():
            return _planned(turn, run, verdict)
        case InQueue():
            return Rehearsed(refused=refused_with_place(verdict.refused, verdict.place, run))
        case WaitsForHold():
            return Rehearsed(refused=verdict.refused, reservation=verdict.hold.reservation)
        case StartsByFamilyRule() | Postponed():
            return Rehearsed(refused=verdict.refused, reservation=present(turn.world, run))
        case Denied():
            return Rehearsed(refused=verdict.refused)
        case Started():
            raise AssertionError("what starts was taken out before")
        case _:
            assert_never(verdict)


def _planned(turn: Turn, run: Run, planned: Planned) -> Rehearsed:
    request, refused, plan = planned.request, planned.refused, planned.plan
    known = present(turn.world, run)
    if plan is None:
        return Rehearsed(refused=refused, reservation=known)
    old = known if known is not None else announced(turn, run)
    seen = plan.preview or _preview(turn, request, plan)
    reservation = reservation_for(turn.world, refused, replace(plan, preview=seen), old)
    return Rehearsed(refused=refused, reservation=reservation, preview=seen)


def _preview(turn: Turn, request: StartRequest, plan: Plan) -> Preview | None:
    """Return what would be preempted on the plan's site; None unless the plan is a start by
    preemption."""
    if not plan.is_due_by_cuts:
        return None
    nodes = turn.world.fleet.nodes
    domains = tuple(sorted({nodes[name].node.domain for name, _ in plan.places}))
    return preview(
        turn.world,
        request,
        turn.calendar,
        PlannedSite(domains=domains, money=plan.money),
        at=max(turn.now, plan.held_from),
        now=turn.now,
        may_sample=lambda: False,
    )
