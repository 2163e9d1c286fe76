"""The queue: pending runs in order of submission, each started, or planned behind those before it.

For each run in turn: start it if it is funded and placed without delaying anybody ahead; else plan
its reservation and put what that holds on the agenda, where the runs behind it will find it.
"""

from functools import partial

from msgspec.structs import replace

from leasehold.control.activation import (
    activate,
    go_on,
    hold_for_activations,
    underway,
    victims_are_gone,
)
from leasehold.control.elastic import in_order
from leasehold.control.life import BIND_FAILING, Standing, Where, units_of
from leasehold.control.line import Line, is_plain
from leasehold.control.places_in_line import PlaceInLine, told_place
from leasehold.control.planning import plan_start
from leasehold.control.reservations import block, cancel_reservation, present, release
from leasehold.control.sweeps import some_of
from leasehold.control.turn import Turn
from leasehold.control.wishes import (
    groups_short_of_minimum,
    next_attempts,
    node_changed_since_blocked,
    waiting_groups,
    wish_for,
)
from leasehold.core.decisions.admit import Wish, admit, as_found_by, owner_allowed
from leasehold.core.decisions.ever import never_fits
from leasehold.core.decisions.fill import fill
from leasehold.core.facts import Confidence, Gang, Opened, Reservation, Run, State
from leasehold.core.units import plural
from leasehold.core.verdicts import Admitted, Refusal, Refused

NAME_MAX = 253  # characters of a Run's name


def consider_all(turn: Turn) -> None:
    """Every pending run once, in order."""
    hold_for_activations(turn)
    line = Line(turn.world.policy, turn.world.memory.alike)
    for run in in_order(turn.world, turn.world.work.pending):
        turn.about = run.uid
        if run.uid not in turn.left_alone and not _is_behind(turn, run, line):
            _consider(turn, run, line)
        if turn.line_is_cut_short:
            return


def _is_behind(turn: Turn, run: Run, line: Line) -> bool:
    """Most of a long line are behind all that are planned, and just like one that was refused a
    moment ago: such a run is told its place, if that is news, and that is all."""
    refused = line.answer(turn, run)
    if refused is None or not line.places.is_full(run, refused):
        return False
    _tell_place(turn, run, refused, line.places.take(run, refused))
    return True


def _consider(turn: Turn, run: Run, line: Line) -> None:
    world = turn.world
    refused = _not_now(turn, run)
    if refused is not None:
        _refuse(turn, run, refused)
        if refused.reason is not Refusal.BIND_FAILING:
            turn.agenda.forget(run.uid)
            cancel_reservation(turn, run, refused.says)
        return  # room that was made for it is kept while it only pauses
    groups = waiting_groups(world, run, turn.now)
    if not groups:
        return
    if _is_sweep(run):
        groups = _start_some(turn, run, groups)
        groups = groups_short_of_minimum(world, run, groups)
        if not groups:
            turn.agenda.forget(run.uid)
            return
    wish = wish_for(world, run, groups)
    known = line.answer(turn, run)
    answer = known or _try(turn, wish)
    if isinstance(answer, Admitted):
        refused = _start(turn, run, answer, groups)
    elif known is None and is_plain(turn, run) and _has_room_by_any_name(turn, wish):
        refused = line.remember(turn, run, answer)
    else:
        refused = answer
    if refused is not None:
        _plan(turn, run, wish, refused, line)


def _has_room_by_any_name(turn: Turn, wish: Wish) -> bool:
    """Whether a batch holds the gang, and would if its run had the longest of names: of those that
    are alike the names differ."""
    longest = replace(wish.run, name="x" * NAME_MAX)
    return not turn.is_too_large(turn.gang_bytes_at_most(longest, wish.want))


def _is_sweep(run: Run) -> bool:
    return run.spec.gang is Gang.GROUP


def _not_now(turn: Turn, run: Run) -> Refused | None:
    """Reasons that have nothing to do with GPUs or money."""
    if run.uid in turn.quarantined:
        return Refused(
            reason=Refusal.QUARANTINED,
            remedy="a decision about this run failed; it is left alone until it is "
            "edited or the controller is restarted. Please report it",
        )
    refused = owner_allowed(turn.world, run)
    if refused is not None:
        return refused
    waiting = [
        where for where in units_of(turn.world, run).values() if where.standing is Standing.WAITING
    ]
    for where in waiting:
        turn.wake(where.retry_at)
    if waiting and all(_backs_off(turn, run, where) for where in waiting):
        return _back_off(turn, run, waiting[0])
    return None


def _backs_off(turn: Turn, run: Run, where: Where) -> bool:
    if where.rejected >= turn.world.policy.bind_attempts:
        turn.world.memory.block_binds(run.uid, turn.world.node_changes)
        if node_changed_since_blocked(turn.world, run, where):
            return False
    return where.retry_at > (turn.now if turn.time_trusted else 0)


def _back_off(turn: Turn, run: Run, where: Where) -> Refused:
    if where.why != BIND_FAILING:
        turn.world.memory.unblock_binds(run.uid)
        return Refused(reason=Refusal.RETRYING, remedy=f"{where.why}: tried again after a pause")
    refused = Refused(
        reason=Refusal.BIND_FAILING,
        remedy=f"{plural(where.rejected, 'attempt')} to bind it "
        f"{'was' if where.rejected == 1 else 'were'} rejected; tried again after a pause",
    )
    if where.rejected >= turn.world.policy.bind_attempts:
        block(turn, run, refused)
    else:
        cancel_reservation(turn, run, refused.says)
    return refused


def _refuse(turn: Turn, run: Run, refused: Refused) -> None:
    if turn.world.memory.refuse(run.uid, refused):
        turn.touched[run.uid] = None
        turn.tell("Run", run.key, str(refused.reason), refused.remedy)


def _tell_place(turn: Turn, run: Run, refused: Refused, place: PlaceInLine) -> None:
    """Its status has its place; an event is worth only why it waits."""
    memory = turn.world.memory
    known, *before = memory.behind.get(run.uid, (None, 0, 0))
    if known is refused and before == [place.mine, place.total]:
        return
    told = told_place(refused, place, run)
    if known is None or (known.reason, known.remedy) != (refused.reason, refused.remedy):
        turn.tell("Run", run.key, str(refused.reason), told.remedy)
    memory.tell_place(run.uid, refused, told, (place.mine, place.total))
    turn.touched[run.uid] = None


def _try(turn: Turn, wish: Wish) -> Admitted | Refused:
    if not turn.world.policy.binder_enabled:
        return Refused(
            reason=Refusal.BINDER_DISABLED,
            remedy="binder.enabled is false: nothing new is started",
        )
    turn.world.memory.unblock_binds(wish.run.uid)
    answer = admit(turn.world, wish, turn.agenda, start=turn.now, now=turn.now)
    if isinstance(answer, Refused) and wish.run.spec.opportunistic:
        filled = _try_spares(turn, wish)
        if isinstance(filled, Admitted):
            return filled
    if isinstance(answer, Refused):
        return never_fits(turn.world, wish) or answer
    return answer


def _try_spares(turn: Turn, wish: Wish) -> Admitted | Refused:
    """On top of spares, and free GPUs beside them, that nobody ahead counts on."""
    world = turn.world
    mark = world.what_if.mark()
    kept = as_found_by(world, wish, turn.agenda, start=turn.now)
    answer = fill(world, wish, turn.agenda, kept, now=turn.now)
    world.what_if.undo(mark)
    return answer


def _start(turn: Turn, run: Run, plan: Admitted, groups: tuple[int, ...]) -> Refused | None:
    """Open the leases; the reservation has done its work."""
    world = turn.world
    found = underway(world, run)
    opened = turn.start(run, plan, attempts=next_attempts(world, run, groups), reason=Opened.START)
    if isinstance(opened, int):
        return _too_large(turn, opened)
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
    turn.tell("Run", run.key, "Admitted", f"{plural(gpus, 'GPU')}, paid by {payers}")
    _warn_of_window(turn, run, plan)
    turn.again = True
    # Whoever was cut for it plans around it from now on, and those ahead of it were planned before
    # it was there: nobody else starts before all of them have been thought over again.
    turn.line_is_cut_short = found is not None and found.reservation.state is State.ACTIVATING
    return None


def _too_large(turn: Turn, size: int) -> Refused:
    return Refused(
        reason=Refusal.GANG_TOO_LARGE,
        remedy=f"its leases need {size} bytes in one ledger batch, which holds "
        f"{turn.world.policy.batch_bytes_max}; use larger pods or fewer of them",
    )


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
                    "WindowEndsFirst",
                    f"its limit passes the window of {segment.envelope}: it will be refinanced "
                    "then, or become an overdraft",
                )


def _start_some(turn: Turn, run: Run, groups: tuple[int, ...]) -> tuple[int, ...]:
    """Groups that live alone: as many as fit, lowest index first; returns those left."""
    world = turn.world
    found = underway(world, run)
    while groups and not turn.line_is_cut_short:
        asked = groups
        if found is not None and found.reservation.state is State.ACTIVATING:
            # Room was made for these; for more it stands in line.
            asked = groups_short_of_minimum(world, run, groups)
        answer = some_of(world, run, asked, turn.agenda, now=turn.now, try_=partial(_try, turn))
        if isinstance(answer, Refused):
            _refuse(turn, run, answer)
            return groups
        started = answer.wish.want.groups
        if _start(turn, run, answer.plan, started) is not None:
            return groups
        groups = groups[len(started) :]
    return groups


def _plan(turn: Turn, run: Run, wish: Wish, refused: Refused, line: Line) -> None:
    world = turn.world
    if not world.policy.binder_enabled:
        _refuse(turn, run, refused)
        return  # no start is planned that nobody may make, and nothing is cut for one
    want = replace(wish.want, groups=wish.want.groups[:1]) if _is_sweep(run) else wish.want
    size = turn.gang_bytes_at_most(run, want)
    if turn.is_too_large(size):
        _refuse(turn, run, _too_large(turn, size))
        block(turn, run, _too_large(turn, size))
        return  # nobody is cut for a run that could not be written down
    reservation = present(world, run)
    if reservation is not None and reservation.state is State.ACTIVATING:
        _refuse(turn, run, refused)
        if victims_are_gone(world, reservation, turn.now):
            go_on(turn, wish, reservation, refused)
        return
    if refused.reason.is_for_good:
        _refuse(turn, run, refused)
        block(turn, run, refused)
        return  # nobody is cut for a run that would not fit if it were alone
    place = line.places.take(run, refused)
    if not place.is_planned:
        _tell_place(turn, run, refused, place)
        turn.agenda.forget(run.uid)
        cancel_reservation(turn, run, world.memory.refusals[run.uid].remedy)
        return
    _refuse(turn, run, refused)
    reservation = plan_start(turn, wish, refused, line)
    if reservation is not None and _is_due(turn, reservation):
        activate(turn, wish, reservation, refused)


def _is_due(turn: Turn, reservation: Reservation) -> bool:
    return (
        turn.time_trusted
        and reservation.state is State.PENDING
        and reservation.starts <= turn.now
        and reservation.confidence in (Confidence.CUTS, Confidence.MONEY)
    )
