"""The queue: every pending run is considered once, in order, and what was found is done.

What becomes of a run is decided by `consider`, which writes nothing down. Here it is applied:
leases are opened, reservations announced, blocked or cancelled, and people told why a run waits.
"""

from functools import partial
from typing import assert_never

from leasehold.control.line.activation import (
    has_only_money,
    recall_activations,
    underway,
)
from leasehold.control.line.consider import (
    Denied,
    InLine,
    Planned,
    Started,
    Then,
    Verdict,
    consider,
)
from leasehold.control.line.due import Due, resolve_due
from leasehold.control.line.made_room import hold_for_activations
from leasehold.control.line.one_pass import Line
from leasehold.control.line.places_in_line import told_place
from leasehold.control.line.planning import write_plan
from leasehold.control.line.wishes import next_attempts
from leasehold.control.reservations import block, cancel_reservation, release
from leasehold.control.told import Told
from leasehold.control.turn import Turn
from leasehold.core.decisions.order import in_order
from leasehold.core.facts import Opened, Run
from leasehold.core.reservations import Confidence, Reservation, State
from leasehold.core.units import plural
from leasehold.core.verdicts import Admitted, Refusal, Refused


def consider_all(turn: Turn) -> None:
    """Every pending run once, in order; then those that are due and have not started."""
    recall_activations(turn)
    hold_for_activations(turn)
    line = Line(turn.world.policy, turn.world.memory.alike)
    due: list[Due] = []
    for run in in_order(turn.world, turn.world.work.pending):
        turn.about = run.uid
        if run.uid not in turn.left_alone:
            _consider(turn, run, line, due)
        if turn.line_is_cut_short:
            return
    resolve_due(turn, due)


def _consider(turn: Turn, run: Run, line: Line, due: list[Due]) -> None:
    verdict = consider(turn, run, line)
    if isinstance(verdict, InLine) and verdict.holds_nothing:
        _tell_place(turn, run, verdict)
        return  # most of a long line: there is nothing else to do for it
    while verdict is not None:
        _note_binds(turn, run, verdict)
        left = _apply(turn, run, verdict, due)
        turn.about = run.uid  # what has started has used up its steps
        one_by_one = isinstance(verdict, Started) and verdict.one_by_one
        verdict = None
        if left:
            verdict = consider(turn, run, line, left=left, one_by_one=one_by_one)


def _note_binds(turn: Turn, run: Run, verdict: Verdict) -> None:
    """Binds that failed are blocked until a node changes: from then on they are not, whatever the
    run waits for meanwhile, until it has been tried once more."""
    memory = turn.world.memory
    if isinstance(verdict, Started):
        memory.unblock_binds(run.uid)
    elif (
        isinstance(verdict, Denied)
        and verdict.then is Then.BLOCK
        and verdict.refused.reason is Refusal.BIND_FAILING
    ):
        memory.block_binds(run.uid, turn.world.node_changes)


def _apply(turn: Turn, run: Run, verdict: Verdict, due: list[Due]) -> tuple[int, ...]:
    """Returns the groups that are to be considered again."""
    match verdict:
        case Started():
            _start(turn, run, verdict.plan, verdict.wish.want.groups)
            return verdict.left
        case Planned():
            _refuse(turn, run, verdict.refused)
            reservation = write_plan(turn, verdict.wish, verdict.refused, verdict.plan)
            if reservation is not None and _is_due(turn, reservation):
                due.append(_due(turn, verdict, reservation))
        case InLine():
            _tell_place(turn, run, verdict)
            turn.agenda.forget(run.uid)
            cancel_reservation(turn, run, turn.world.memory.refusals[run.uid].remedy)
        case Denied():
            _refuse(turn, run, verdict.refused)
            _settle_reservation(turn, run, verdict, due)
        case _:
            assert_never(verdict)
    return ()


def _due(turn: Turn, planned: Planned, reservation: Reservation) -> Due:
    """Its time has come. If cuts are no help it is blocked, unless a later start is known."""
    wish, refused = planned.wish, planned.refused
    known = planned.plan.otherwise if planned.plan is not None else None
    later = None if known is None else partial(write_plan, turn, wish, refused, known)
    return Due(wish=wish, reservation=reservation, refused=refused, otherwise=later)


def _settle_reservation(turn: Turn, run: Run, denied: Denied, due: list[Due]) -> None:
    match denied.then:
        case Then.KEEP | Then.REST:
            pass
        case Then.CANCEL:
            turn.agenda.forget(run.uid)
            cancel_reservation(turn, run, denied.refused.says)
        case Then.PAUSE:
            cancel_reservation(turn, run, denied.refused.says)
        case Then.BLOCK:
            block(turn, run, denied.refused)
        case Then.GO_ON:
            reservation = turn.world.reservations[turn.world.reservation_of[run.uid]]
            assert denied.wish is not None, run.key
            assert reservation.state is State.ACTIVATING, run.key
            if has_only_money(turn.world, reservation):
                due.append(Due(wish=denied.wish, reservation=reservation, refused=denied.refused))
            else:  # all that was cut is gone, and it was unlucky
                block(turn, run, denied.refused)
        case _:
            assert_never(denied.then)


def _refuse(turn: Turn, run: Run, refused: Refused) -> None:
    if turn.world.memory.refuse(run.uid, refused):
        turn.touched[run.uid] = None
        turn.tell("Run", run.key, refused.reason, refused.remedy)


def _tell_place(turn: Turn, run: Run, verdict: InLine) -> None:
    """Its status has its place; an event is worth only why it waits."""
    memory, refused, place = turn.world.memory, verdict.refused, verdict.place
    known, *before = memory.behind.get(run.uid, (None, 0, 0))
    if known is refused and before == [place.mine, place.total]:
        return
    told = told_place(refused, place, run)
    if known is None or (known.reason, known.remedy) != (refused.reason, refused.remedy):
        turn.tell("Run", run.key, refused.reason, told.remedy)
    memory.tell_place(run.uid, refused, told, (place.mine, place.total))
    turn.touched[run.uid] = None


def _start(turn: Turn, run: Run, plan: Admitted, groups: tuple[int, ...]) -> None:
    """Open the leases; the reservation has done its work."""
    world = turn.world
    found = underway(world, run)
    attempts = next_attempts(world, run, groups)
    opened = turn.start(run, plan, attempts=attempts, reason=Opened.START)
    assert isinstance(opened, list), f"{run.key}: its size was known"
    world.memory.note_trace(run.uid, plan.trace)
    world.memory.forget_refusal(run.uid)
    turn.agenda.forget(run.uid)
    release(turn, run)
    payers = ", ".join(
        f"{segment.envelope} {segment.gpus}"
        for _, covered in plan.covered
        for segment in covered.segments
    )
    gpus = sum(lease.gpus for lease in opened)
    turn.tell("Run", run.key, Told.ADMITTED, f"{plural(gpus, 'GPU')}, paid by {payers}")
    _warn_of_window(turn, run, plan)
    turn.again = True
    # Whoever was cut for it plans around it from now on, and those ahead of it were planned before
    # it was there: nobody else starts before all of them have been thought over again.
    turn.line_is_cut_short = found is not None and found.reservation.state is State.ACTIVATING


def _warn_of_window(turn: Turn, run: Run, plan: Admitted) -> None:
    if run.spec.max_duration is None:
        return
    end = turn.now + run.spec.max_duration
    for _, covered in plan.covered:
        for segment in covered.segments:
            if turn.world.envelopes[segment.envelope].end < end:
                turn.tell(
                    "Run",
                    run.key,
                    Told.WINDOW_ENDS_FIRST,
                    f"its limit passes the window of {segment.envelope}: it will be refinanced "
                    "then, or become an overdraft",
                )


def _is_due(turn: Turn, reservation: Reservation) -> bool:
    return (
        turn.time_trusted
        and reservation.state is State.PENDING
        and reservation.starts <= turn.now
        and reservation.confidence in (Confidence.CUTS, Confidence.MONEY)
    )
