"""decide — one turn over the World: level-triggered, so it can be repeated after any crash.

Tends the runs that something happened to, brings envelopes back within their caps, then starts and
plans what is pending, then lets elastic runs grow. The shell calls it after every event and timer.
"""

from leasehold.control.preemption.overdrafts import forgive_lowered_caps, handle_overdrafts
from leasehold.control.preemption.publish import finish_cuts
from leasehold.control.reservations import present
from leasehold.control.running.elastic import grow_all, shrink_all
from leasehold.control.running.tend import tend
from leasehold.control.scheduling.activation import recall_activations
from leasehold.control.scheduling.queue import walk_queue
from leasehold.control.scheduling.settling import is_in_motion, must_wait
from leasehold.control.turn import Turn
from leasehold.control.undecided import DecisionFailed, why_put_aside
from leasehold.core.facts import Uid
from leasehold.core.preemption.site import protections_ending
from leasehold.core.reservations import State
from leasehold.core.units import Instant
from leasehold.core.world.world import World


def decide(
    world: World,
    *,
    now: Instant,
    key: bytes,
    time_trusted: bool = True,
    quarantined: frozenset[Uid] = frozenset(),
    left_alone: frozenset[Uid] = frozenset(),
    is_strict: bool = False,
) -> Turn:
    """Everything that is to be done now. The World is changed as if it were done already.

    Runs that are quarantined are looked after and nothing begins for them; those that are left
    alone are not even that. Raises `DecisionFailed` for a defect. A strict turn considers plans
    that stand all the same: a simulation finds what they miss."""
    world.steps.begin_turn()
    turn = Turn(world, now=now, key=key, time_trusted=time_trusted, is_strict=is_strict)
    turn.quarantined = quarantined | left_alone
    turn.left_alone = left_alone
    try:
        _decide(turn)
        turn.about = ""
        forgive_lowered_caps(turn)
    except Exception as error:
        raise DecisionFailed(turn.about) from error
    turn.seal()
    return turn


def _decide(turn: Turn) -> None:
    world = turn.world
    turn.state_changed_facts()
    is_first = world.work.take_up()
    if is_first:
        finish_cuts(turn)
    for uid in world.work.take_runs(turn.now):
        if uid not in turn.left_alone:
            turn.about = uid
            turn.touched[uid] = None
            tend(turn, uid)
        elif uid in world.runs and world.memory.refuse(uid, why_put_aside(world, uid)):
            turn.touched[uid] = None
    turn.about = ""
    if is_first:
        recall_activations(turn)
    # What was told to end may be gone in a moment, and pay for others with what it leaves.
    is_too_early = bool(turn.marked) and world.memory.may_postpone()
    has_cut = not is_too_early and handle_overdrafts(turn)
    shrink_all(turn)
    turn.about = ""
    if not _is_postponed(turn, has_cut=has_cut):
        walk_queue(turn)
        if turn.has_walked and not must_wait_to_grow(turn):
            grow_all(turn)
        turn.about = ""
        _note_holds(turn)
    world.memory.note_turn(turn.now, is_still=not is_in_motion(turn))
    _wake_for_protected(turn)
    _wake_for_overdue(turn)
    _wake_for_windows(turn)
    turn.wake(world.work.next_alarm)


def _is_postponed(turn: Turn, *, has_cut: bool) -> bool:
    """Leases that were told to end in this turn may be gone in a moment: the queue is considered in
    the next turn, so that all events of an instant come first (Q2). Never twice in a row, except
    that what an overdraft still has to cut is cut first."""
    is_postponed = turn.world.memory.postpone_once(wanted=bool(turn.marked))
    is_postponed = is_postponed or (has_cut and must_wait(turn))
    turn.again = turn.again or is_postponed
    return is_postponed


def must_wait_to_grow(turn: Turn) -> bool:
    """A run that has just started may grow, too, and before others; and the runs ahead of it
    planned without it."""
    return bool(turn.world.work.elastic) and must_wait(turn)


def _note_holds(turn: Turn) -> None:
    """Remember what activations hold of nodes, and what plans claim of money."""
    world, calendar = turn.world, turn.calendar
    held: dict[str, int] = {}
    for uid in sorted(world.activating):
        for entry in calendar.entries_of(uid):
            held[entry.node] = held.get(entry.node, 0) + entry.gpus
    claims = tuple(claim for claims in calendar.claims.values() for claim in claims)
    world.memory.note_holds(held, claims)


def _wake_for_protected(turn: Turn) -> None:
    """A run that is blocked is planned again when a protection from lotteries ends."""
    world = turn.world
    is_any_blocked = any(
        (run := world.runs.get(uid)) is not None
        and (reservation := present(world, run)) is not None
        and reservation.state is State.BLOCKED
        for uid in world.work.pending
    )
    if is_any_blocked:
        for at in protections_ending(world, turn.now):
            turn.wake(at)


def _wake_for_overdue(turn: Turn) -> None:
    """A lease that does not end in its grace period may stay for ever: plans cannot count on it."""
    world = turn.world
    if world.work.pending:
        for name in world.ending:
            ending = world.leases[name].ending
            assert ending is not None, name
            turn.wake(ending.deadline)


def _wake_for_windows(turn: Turn) -> None:
    """A window that opens or closes is a change that nobody writes: whoever is short may be paid
    for then, and who counted on it must plan anew."""
    world = turn.world
    if world.work.pending or world.work.elastic or world.overdrafts:
        for envelope in world.envelopes.values():
            for edge in (envelope.start, envelope.end):
                if edge > turn.now:  # a window may have opened before there were clocks like ours
                    turn.wake(edge)
