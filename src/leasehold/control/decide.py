"""decide: one turn over the World, called by the shell after every event and timer.

A turn tends the runs that changed, settles overdrafts, walks the queue, and lets elastic runs
grow, in this order. It looks at the present state only, not at the events that led there
(level-triggered), so it can be repeated after any crash.
"""

from leasehold.control.preemption.overdrafts import forgive_lowered_caps, handle_overdrafts
from leasehold.control.preemption.publish import finish_cuts
from leasehold.control.running.elastic import grow_all, shrink_all
from leasehold.control.running.tend import tend
from leasehold.control.scheduling.activation import recall_activations
from leasehold.control.scheduling.queue import walk_queue
from leasehold.control.scheduling.settling import is_in_motion, must_wait
from leasehold.control.turn import Turn
from leasehold.control.undecided import DecisionFailed, why_put_aside
from leasehold.core.facts import Uid
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
    """Return everything that must be done at `now`, as a sealed `Turn`.

    The World is changed at once, as if the Turn were already committed. Raises `DecisionFailed` if
    a decision raises, which is a defect; the error names the run.

    `key`: the secret from which nonces of lotteries are derived.
    `time_trusted`: false while the clock is unclear; then no decision that depends on time alone is
    made.
    `quarantined`: runs that are tended, but for which nothing new begins.
    `left_alone`: runs that are not even tended.
    `is_strict`: also consider runs whose plan stands, and check that the result is the same (Q7).
    Simulations use it.
    """
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
    """Make all decisions of the turn, in their order."""
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
    # Leases that were marked as ending in this turn may close at the same instant. Their money
    # could then pay for the leases of an overdraft.
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
    _wake_for_overdue(turn)
    _wake_for_windows(turn)
    turn.wake(world.work.next_alarm)


def _is_postponed(turn: Turn, *, has_cut: bool) -> bool:
    """Return whether the queue is left to the next turn; if so, request that turn.

    Leases that were marked as ending in this turn may close at the same instant. All events of an
    instant are applied before the queue is walked (Q2). The walk is not postponed twice in a row,
    unless an overdraft has preempted (`has_cut`) and may have to preempt more.
    """
    is_postponed = turn.world.memory.postpone_once(wanted=bool(turn.marked))
    is_postponed = is_postponed or (has_cut and must_wait(turn))
    turn.again = turn.again or is_postponed
    return is_postponed


def must_wait_to_grow(turn: Turn) -> bool:
    """Return whether elastic runs must wait for the next turn to grow; if so, request that turn.

    Growing is decided when no run starts or ends any more. A run that started in this turn may want
    to grow, too, and may come first (E1). And the plans of the runs ahead of it were made before it
    started.
    """
    return bool(turn.world.work.elastic) and must_wait(turn)


def _note_holds(turn: Turn) -> None:
    """Keep in the World's memory which GPUs activations hold, by node, and all claims on money.

    Overdrafts, edits and views read them there.
    """
    world, calendar = turn.world, turn.calendar
    held: dict[str, int] = {}
    for uid in sorted(world.activating):
        for entry in calendar.entries_of(uid):
            held[entry.node] = held.get(entry.node, 0) + entry.gpus
    claims = tuple(claim for claims in calendar.claims.values() for claim in claims)
    world.memory.note_holds(held, claims)


def _wake_for_overdue(turn: Turn) -> None:
    """Request a turn at the deadlines of ending leases.

    A lease that is open after its deadline has no known end, and plans that count on its GPUs fall
    through.
    """
    world = turn.world
    if world.work.pending:
        for name in world.ending:
            ending = world.leases[name].ending
            assert ending is not None, name
            turn.wake(ending.deadline)


def _wake_for_windows(turn: Turn) -> None:
    """Request a turn when a window opens or closes.

    No object changes at that instant, but a run may find payers, or lose those of its plan.
    """
    world = turn.world
    if world.work.pending or world.work.elastic or world.overdrafts:
        for envelope in world.envelopes.values():
            for edge in (envelope.start, envelope.end):
                if edge > turn.now:  # the start of a window may even be negative, before 1970
                    turn.wake(edge)
