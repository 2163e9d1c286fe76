"""The queue: consider every waiting run once, in order, and apply the verdicts (Q2).

`consider` returns the verdict on a run. This module applies it: it opens leases, writes
reservations, and reports why a run waits.
"""

from typing import assert_never

from msgspec.structs import replace

from leasehold.control.preemption.publish import Announced
from leasehold.control.reasons import NoticeReason
from leasehold.control.reservations import announced, block, cancel_reservation, present, release
from leasehold.control.scheduling.activation import (
    Due,
    activate_due,
    apply_settlement,
    finish_activations,
    hold_plan,
)
from leasehold.control.scheduling.consider import (
    Denied,
    InQueue,
    Planned,
    Postponed,
    ReservationChange,
    Started,
    StartsByFamilyRule,
    Verdict,
    WaitsForHold,
    consider,
)
from leasehold.control.scheduling.holds import enter_hold, enter_holds, give_up, hold_of
from leasehold.control.scheduling.plans import Plan
from leasehold.control.scheduling.queue_pass import QueuePass, refused_with_place
from leasehold.control.scheduling.requests import next_attempts
from leasehold.control.scheduling.standing_plans import (
    StandingPlan,
    StandingPlans,
    assert_same,
)
from leasehold.control.turn import Turn
from leasehold.core.admission.order import in_order
from leasehold.core.calendar.outlook import Supply
from leasehold.core.facts import Opened, Run
from leasehold.core.requests import StartRequest
from leasehold.core.reservations import Reservation, State
from leasehold.core.units import format_instant, plural
from leasehold.core.verdicts import Admitted, Refusal, Refused
from leasehold.core.world.world import World

_ABOUT_ROOM = frozenset(str(each) for each in Refusal if each.is_about_room)


def walk_queue(turn: Turn) -> None:
    """Consider every waiting run once, in order; then activate the runs that are due (Q2, A1).

    A run whose plan stands is not considered (Q7). The walk ends early if GPUs or money become free
    that the runs ahead were not offered. Then the next turn walks the queue again.
    """
    world = turn.world
    enter_holds(turn)
    if finish_activations(turn):
        return
    walk = QueuePass(world.policy, world.memory.alike, world.memory.kept(Supply))
    standing = world.memory.kept(StandingPlans)
    standing.begin(turn, walk)
    due: list[Due] = []
    for run in in_order(world, world.work.pending):
        if run.uid in turn.left_alone:
            continue
        stands = standing.of(run)
        if stands is not None and not turn.is_strict:
            _let_stand(turn, run, stands, walk)
            continue
        turn.about = run.uid
        verdict, has_freed = _consider(turn, run, walk, due)
        standing.note(run, verdict)
        if stands is not None:
            assert_same(run, stands, verdict)
        if has_freed:
            turn.again = True
            return
    standing.end()
    turn.has_walked = True
    if turn.time_trusted:
        activate_due(turn, due)


def _let_stand(turn: Turn, run: Run, stands: StandingPlan, walk: QueuePass) -> None:
    """Give the run the same verdict as in the walk before: its place in the queue, or its plan
    (Q7)."""
    verdict = stands.verdict
    place = walk.take_place(run, verdict.refused)
    if isinstance(verdict, InQueue):
        _report_place(turn, run, replace(verdict, place=place))
        return
    assert verdict.plan is not None, run.key
    turn.calendar.enter(run.uid, *stands.lines)
    _wake_for(turn, verdict.plan)


def _consider(turn: Turn, run: Run, walk: QueuePass, due: list[Due]) -> tuple[Verdict | None, bool]:
    """Consider a run and apply the verdicts. Return the last verdict, and whether the walk must
    end.

    The groups of a sweep are considered one after the other until one cannot start (G1). The walk
    must end if GPUs or money became free that the runs ahead were not offered.
    """
    verdict = consider(turn, run, walk)
    while verdict is not None:
        _note_binds(turn, run, verdict)
        left = _apply(turn, run, verdict, due)
        turn.about = run.uid  # count the steps of the next group from zero
        if isinstance(verdict, StartsByFamilyRule | Postponed) or (
            isinstance(verdict, WaitsForHold) and verdict.is_over
        ):
            return verdict, True
        if not left:
            break
        verdict = consider(turn, run, walk, left=left)
    return verdict, False


def _note_binds(turn: Turn, run: Run, verdict: Verdict) -> None:
    """Note whether the run's binds are blocked (B3).

    A start ends the block. Before that, no other verdict ends it, and a change of a node allows
    another try.
    """
    memory = turn.world.memory
    if isinstance(verdict, Started):
        memory.unblock_binds(run.uid)
    elif (
        isinstance(verdict, Denied)
        and verdict.then is ReservationChange.BLOCK
        and verdict.refused.reason is Refusal.BIND_FAILING
    ):
        memory.block_binds(run.uid, turn.world.node_changes)


def _apply(turn: Turn, run: Run, verdict: Verdict, due: list[Due]) -> tuple[int, ...]:
    """Apply a verdict and return the groups of a sweep that must be considered next."""
    match verdict:
        case Started():
            _start(turn, run, verdict.plan, verdict.request.placement.groups)
            return verdict.left
        case Planned():
            _refuse(turn, run, verdict.refused)
            _write_plans(turn, run, verdict, due)
        case StartsByFamilyRule():
            _start_by_family_rule(turn, run, verdict)
        case InQueue():
            _report_place(turn, run, verdict)
            if not verdict.is_like_another:
                cancel_reservation(turn, run, turn.world.memory.refusals[run.uid].remedy)
        case WaitsForHold():
            if run.uid not in turn.world.memory.refusals:
                _refuse(turn, run, verdict.refused)
            if verdict.is_over:
                give_up(turn, verdict.hold)
        case Postponed():
            if run.uid not in turn.world.memory.refusals:
                _refuse(turn, run, verdict.refused)
        case Denied():
            _refuse(turn, run, verdict.refused)
            _settle_reservation(turn, run, verdict)
        case _:
            assert_never(verdict)
    return ()


def _due(request: StartRequest, found: Reservation, refused: Refused) -> Due:
    return Due(request=request, reservation=found, refused=refused)


def _settle_reservation(turn: Turn, run: Run, denied: Denied) -> None:
    """Keep, cancel or block the reservation of a denied run."""
    match denied.then:
        case ReservationChange.KEEP:
            pass
        case ReservationChange.CANCEL:
            cancel_reservation(turn, run, denied.refused.says)
        case ReservationChange.BLOCK:
            block(turn, run, denied.refused)
        case _:
            assert_never(denied.then)


# Plans.


def _write_plans(turn: Turn, run: Run, planned: Planned, due: list[Due]) -> None:
    """Write the reservation of a planned run; add the run to `due` if it must be activated now.

    If no start is planned, the reservation is cancelled or blocked.
    """
    if planned.plan is None:
        cancel_reservation(turn, run, "no start of it is planned")
    elif planned.plan.state is State.BLOCKED:
        block(turn, run, planned.refused)
    else:
        found = _reserve(turn, planned.request, planned.refused, planned.plan)
        if planned.plan.preview is not None:
            turn.world.memory.foresee(run.uid, is_known=planned.plan.preview.odds is not None)
        _wake_for(turn, planned.plan)
        if planned.plan.is_due_by_cuts and planned.plan.held_from <= turn.now:
            due.append(_due(planned.request, found, planned.refused))
    for _, plan in planned.more:
        turn.wake(plan.held_from)


def _wake_for(turn: Turn, plan: Plan) -> None:
    """Request turns for the instants at which the plan's notice, its hold and its start begin."""
    turn.wake(plan.starts)
    turn.wake(plan.starts - turn.world.policy.activation_lead)
    turn.wake(plan.held_from)


def _reserve(turn: Turn, request: StartRequest, refused: Refused, plan: Plan) -> Reservation:
    """Return the run's reservation with this plan; write it only if the plan changed.

    A message that differs only in a number is no change.
    """
    old = present(turn.world, request.run)
    is_new = old is None or old.state is State.BLOCKED
    if old is None or is_new:
        word = f"starts at {format_instant(plan.starts)}, {plan.confidence}"
        turn.tell("Run", request.run.key, NoticeReason.RESERVED, word)
        old = announced(turn, request.run) if old is None else replace(old, since=turn.now)
    new = reservation_for(turn.world, refused, plan, old)
    if old.reason in _ABOUT_ROOM and new.reason in _ABOUT_ROOM:
        new = replace(new, reason=old.reason)
    if is_new or replace(new, message=old.message, remedies=old.remedies) != old:
        turn.reserve(new)
        return new
    return old


def reservation_for(world: World, refused: Refused, plan: Plan, old: Reservation) -> Reservation:
    """Return the reservation `old` with the state, places and words of the plan."""
    nodes = [name for name, _ in plan.places if name in world.fleet.nodes]
    seen, known = plan.preview, plan.known
    is_same = (old.starts, old.held_places, old.held_from) == (
        plan.starts,
        plan.places,
        plan.held_from,
    )
    odds = old.odds if plan.is_site and is_same else ()
    return replace(
        old,
        state=plan.state,
        reason=str(refused.reason),
        message=refused.remedy,
        starts=plan.starts,
        confidence=plan.confidence,
        deficit=seen.deficit if seen is not None else old.deficit if is_same else refused.short_by,
        domains=tuple(sorted({world.fleet.nodes[name].node.domain for name in nodes})),
        nodes=tuple(nodes),
        payers=tuple(sorted({each.payer for each in plan.money}))
        or tuple(sorted(step.envelope for step in refused.trace if step.taken)),
        releases=tuple((name, at) for at, name in known.releases)
        if known is not None
        else old.releases
        if is_same
        else (),
        remedies=_remedies(plan, refused),
        odds=seen.odds if seen is not None and seen.odds is not None else odds,
        by_cuts=plan.by_cuts,
        by_family=plan.by_family,
        held_from=plan.held_from if plan.places or plan.money else 0,
        held_places=plan.places,
        held_money=plan.money,
        is_site=plan.is_site,
    )


def _remedies(plan: Plan, refused: Refused) -> tuple[str, ...]:
    """Return what a preemption would take, step by step; without a preemption, the refusal's
    remedy."""
    seen = plan.preview
    if seen is None:
        return (refused.remedy,)
    lines = []
    if seen.spares:
        lines.append(f"dropping spares would free {plural(seen.spares, 'GPU')}")
    for run in sorted({run for run, _ in seen.shrunk}):
        groups = ", ".join(str(group) for each, group in seen.shrunk if each == run)
        lines.append(f"{run} would give up groups {groups}")
    if seen.left_to_lottery:
        lines.append(f"{plural(seen.left_to_lottery, 'GPU')} would be taken by lottery")
    return tuple(lines)


# Why a run waits.


def _refuse(turn: Turn, run: Run, refused: Refused) -> None:
    """Note why the run waits, and report it if it is news."""
    if turn.world.memory.refuse(run.uid, refused):
        turn.touched[run.uid] = None
        turn.tell("Run", run.key, refused.reason, refused.remedy)


def _report_place(turn: Turn, run: Run, verdict: InQueue) -> None:
    """Note the run's place in the queue for its status; report it only if the reason is new."""
    memory, refused, place = turn.world.memory, verdict.refused, verdict.place
    known, *before = memory.behind.get(run.uid, (None, 0, 0))
    if known is refused and before == [place.mine, place.total]:
        return
    reported = refused_with_place(refused, place, run)
    if known is None or known.essence != refused.essence:
        turn.tell("Run", run.key, refused.reason, reported.remedy)
    memory.note_place(run.uid, refused, reported, (place.mine, place.total))
    turn.touched[run.uid] = None


# Starts.


def _start(turn: Turn, run: Run, plan: Admitted, groups: tuple[int, ...]) -> None:
    """Open the leases of a plan and report the start.

    The run's reservation is released. During an activation it is not: it ends when the run is bound
    (A4).
    """
    world = turn.world
    attempts = next_attempts(world, run, groups)
    opened = turn.start(run, plan, attempts=attempts, reason=Opened.START)
    # `consider._try` has checked the size.
    assert isinstance(opened, list), f"{run.key}: its size was known"
    world.memory.note_trace(run.uid, plan.trace)
    world.memory.forget_refusal(run.uid)
    if run.uid in world.activating:
        turn.calendar.forget(run.uid)
    else:
        release(turn, run)
    payers = ", ".join(
        f"{segment.envelope} {segment.gpus}"
        for _, covered in plan.covered
        for segment in covered.segments
    )
    gpus = sum(lease.gpus for lease in opened)
    turn.tell("Run", run.key, NoticeReason.ADMITTED, f"{plural(gpus, 'GPU')}, paid by {payers}")
    _warn_of_window(turn, run, plan)
    turn.again = True


def _warn_of_window(turn: Turn, run: Run, plan: Admitted) -> None:
    """Warn if the run's limit is later than the end of a payer's window (O1)."""
    if run.spec.max_duration is None:
        return
    end = turn.now + run.spec.max_duration
    for _, covered in plan.covered:
        for segment in covered.segments:
            if turn.world.envelopes[segment.envelope].end < end:
                turn.tell(
                    "Run",
                    run.key,
                    NoticeReason.WINDOW_ENDS_FIRST,
                    f"its time limit is after the end of the window of {segment.envelope}; then "
                    f"another envelope must pay, or {segment.envelope} is overdrawn",
                )


def _start_by_family_rule(turn: Turn, run: Run, verdict: StartsByFamilyRule) -> None:
    """Move or end the family's leases (O5), and start the run.

    If leases must end first, the run's place is held until they have ended.
    """
    found, taken = present(turn.world, run), verdict.taken
    assert found is not None, run.key
    assert taken.plan is not None, run.key
    subject = Announced(found.subject, batch=found.batch, commitment=found.commitment)
    apply_settlement(turn, verdict.request, taken, subject)
    turn.again = True
    if taken.cuts is None and not turn.world.ending:
        _start(turn, run, taken.plan, verdict.request.placement.groups)
    else:
        hold_plan(turn, run, found, taken.plan)
        hold = hold_of(turn.world, run)
        assert hold is not None, run.key
        enter_hold(turn, hold)
