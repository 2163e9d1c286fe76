"""consider — what becomes of one run in line: it starts, is planned, stands in line, or is denied.

It writes nothing down and changes no fact. Only the pass learns from it: the line which places are
taken and what those alike were told, the agenda that a run that is planned anew holds nothing
meanwhile. The queue applies the verdict; the question `plan` prints it.
"""

from enum import Enum
from functools import partial

from msgspec.structs import replace

from leasehold.control.line.activation import underway, victims_are_gone
from leasehold.control.line.made_room import where_held
from leasehold.control.line.one_pass import Line, is_plain
from leasehold.control.line.places_in_line import PlaceInLine
from leasehold.control.line.planning import Plan, plan_for
from leasehold.control.line.sweeps import some_of
from leasehold.control.line.wishes import (
    groups_short_of_minimum,
    next_attempts,
    node_changed_since_blocked,
    waiting_groups,
    wish_for,
)
from leasehold.control.reservations import present
from leasehold.control.running.life import BIND_FAILING, Standing, Where, units_of, unstarted
from leasehold.control.turn import Turn
from leasehold.control.undecided import why_put_aside
from leasehold.core.decisions.admit import (
    Wish,
    admit,
    as_found_by,
    held,
    money_stays_until,
    owner_allowed,
)
from leasehold.core.decisions.ever import never_fits
from leasehold.core.decisions.fill import fill
from leasehold.core.decisions.shelter import leaves_room, may_shelter
from leasehold.core.facts import Gang, Record, Run
from leasehold.core.reservations import State
from leasehold.core.units import plural
from leasehold.core.verdicts import Admitted, Refusal, Refused

NAME_MAX = 253  # characters of a Run's name


class Started(Record):
    """All of it, or some groups that live alone: the others are to be considered again."""

    wish: Wish
    plan: Admitted
    left: tuple[int, ...] = ()  # groups
    one_by_one: bool = False  # they were refused together, and are not asked together again


class Planned(Record):
    """It cannot start now, and somebody of its place in line is planned."""

    wish: Wish
    refused: Refused
    plan: Plan | None  # None: it is blocked, and nothing has changed for it


class InLine(Record):
    """Enough others are planned before it."""

    refused: Refused
    place: PlaceInLine
    holds_nothing: bool = False  # as is known of one just like another


class Then(Enum):
    """What becomes of the reservation of a run that is denied."""

    KEEP = "keep"  # it stays as it is
    CANCEL = "cancel"
    PAUSE = "pause"  # it is cancelled; room that was made is kept while the run only pauses
    BLOCK = "block"
    GO_ON = "go on"  # room was made for it, all victims are gone, and it does not fit
    REST = "rest"  # it lives; groups that wait for room need no reservation


class Denied(Record):
    """Time, GPUs and money alone will not do; or it is enough as it is."""

    refused: Refused
    then: Then
    wish: Wish | None = None


Verdict = Started | Planned | InLine | Denied


def consider(
    turn: Turn,
    run: Run,
    line: Line,
    *,
    left: tuple[int, ...] = (),
    begun: int = 0,
    one_by_one: bool = False,
) -> Verdict | None:
    """None: nothing of it waits. `left`: what a start of some groups has left of a sweep, and
    `begun` how many of its groups live that no lease tells of. `one_by_one`: as the start said."""
    known = line.answer(turn, run)
    if known is not None and line.places.is_full(run, known):
        # Most of a long line are behind all that are planned, and just like one that was refused
        # a moment ago: such a run is told its place, and that is all.
        return InLine(refused=known, place=line.places.take(run, known), holds_nothing=True)
    if not left:
        denied = _not_now(turn, run)
        if denied is not None:
            return denied
    groups = left or waiting_groups(turn.world, run, turn.now)
    if not groups:
        return None
    if run.spec.gang is Gang.GROUP:
        return _consider_sweep(turn, run, line, groups, begun=begun, one_by_one=one_by_one)
    wish = wish_for(turn.world, run, groups)
    answer = known or _try(turn, wish)
    if isinstance(answer, Admitted):
        return Started(wish=wish, plan=answer)
    if known is None and is_plain(turn, run) and _has_room_by_any_name(turn, wish):
        answer = line.remember(turn, run, answer)
    return _plan(turn, wish, answer, line)


def _consider_sweep(
    turn: Turn,
    run: Run,
    line: Line,
    groups: tuple[int, ...],
    *,
    begun: int,
    one_by_one: bool,
) -> Verdict | None:
    """Groups that live alone: as many as fit, lowest index first. Only those that are short of
    its minimum are planned."""
    world = turn.world
    short = groups_short_of_minimum(world, run, groups, begun=begun)
    if not turn.line_is_cut_short:
        found = underway(world, run)
        is_for_these = found is not None and found.reservation.state is State.ACTIVATING
        # Room was made for those that are short; for more it stands in line.
        most = len(short) if is_for_these and short else None
        answer = some_of(
            world,
            run,
            groups,
            turn.agenda,
            now=turn.now,
            try_=partial(_try_groups, turn),
            most=most,
            one_by_one=one_by_one,
        )
        if not isinstance(answer, Refused):
            first = answer.wish.want.groups
            return Started(
                wish=answer.wish,
                plan=answer.plan,
                left=groups[len(first) :],
                one_by_one=answer.one_by_one,
            )
        if not short:
            return Denied(refused=answer, then=Then.REST)
    if not short:
        return None
    wish = wish_for(world, run, short)
    again = _try(turn, wish)
    if isinstance(again, Admitted):
        return Started(wish=wish, plan=again, left=groups[len(short) :])
    return _plan(turn, wish, again, line)


# Reasons that have nothing to do with GPUs or money.


def _not_now(turn: Turn, run: Run) -> Denied | None:
    if run.uid in turn.quarantined:
        return Denied(refused=why_put_aside(turn.world, run.uid), then=Then.CANCEL)
    not_allowed = owner_allowed(turn.world, run)
    if not_allowed is not None:
        return Denied(refused=not_allowed, then=Then.CANCEL)
    alike = unstarted(turn.world, run)
    units = [alike] if alike is not None else units_of(turn.world, run).values()
    waiting = [where for where in units if where.standing is Standing.WAITING]
    for where in waiting:
        turn.wake(where.retry_at)
    if waiting and all(_backs_off(turn, run, where) for where in waiting):
        return _back_off(turn, waiting[0])
    return None


def _backs_off(turn: Turn, run: Run, where: Where) -> bool:
    if node_changed_since_blocked(turn.world, run, where):
        return False
    return where.retry_at > (turn.now if turn.time_trusted else 0)


def _back_off(turn: Turn, where: Where) -> Denied:
    if where.why != BIND_FAILING:
        refused = Refused(reason=Refusal.RETRYING, remedy=f"{where.why}: tried again after a pause")
        return Denied(refused=refused, then=Then.CANCEL)
    refused = Refused(
        reason=Refusal.BIND_FAILING,
        remedy=f"{plural(where.rejected, 'attempt')} to bind it "
        f"{'was' if where.rejected == 1 else 'were'} rejected; tried again after a pause",
    )
    is_blocked = where.rejected >= turn.world.policy.bind_attempts
    return Denied(refused=refused, then=Then.BLOCK if is_blocked else Then.PAUSE)


# GPUs and money.


def _try(turn: Turn, wish: Wish) -> Admitted | Refused:
    """Funded, placed, and small enough to be written down."""
    world = turn.world
    if not world.policy.binder_enabled:
        return Refused(
            reason=Refusal.BINDER_DISABLED,
            remedy="binder.enabled is false: nothing new is started",
        )
    answer = admit(world, wish, turn.agenda, start=turn.now, now=turn.now)
    # On spares it would not be asked which nodes its volumes can be reached from.
    may_fill = wish.run.spec.opportunistic and wish.want.only is None
    if isinstance(answer, Refused) and may_fill:
        filled = _try_spares(turn, wish)
        answer = filled if isinstance(filled, Admitted) else answer
    if isinstance(answer, Refused):
        answer = where_held(turn, wish) or answer
    if isinstance(answer, Refused):
        turn.wake(money_stays_until(world, wish, answer, turn.agenda, now=turn.now))
        return never_fits(world, wish) or answer
    attempts = next_attempts(world, wish.run, wish.want.groups)
    size = turn.bytes_too_many(wish.run, answer, attempts)
    return answer if size is None else _too_large(turn, size)


def _try_groups(turn: Turn, wish: Wish) -> Admitted | Refused:
    """Groups of a sweep, if those that are cut for reservations ahead can still be."""
    world, run, groups = turn.world, wish.run, wish.want.groups
    answer = _try(turn, wish)
    if isinstance(answer, Refused) or not may_shelter(world, turn.agenda, run, groups):
        return answer
    leases = turn.leases_of(run, answer, next_attempts(world, run, groups))
    if leaves_room(world, turn.agenda, run, leases, now=turn.now):
        return answer
    return held(wish.want, answer.trace)


def _try_spares(turn: Turn, wish: Wish) -> Admitted | Refused:
    """On top of spares, and free GPUs beside them, that nobody ahead counts on."""
    world = turn.world
    mark = world.what_if.mark()
    kept = as_found_by(world, wish, turn.agenda, start=turn.now)
    answer = fill(world, wish, turn.agenda, kept, now=turn.now)
    world.what_if.undo(mark)
    return answer


def _too_large(turn: Turn, size: int) -> Refused:
    return Refused(
        reason=Refusal.GANG_TOO_LARGE,
        remedy=f"its leases need {size} bytes in one ledger batch, which holds "
        f"{turn.world.policy.batch_bytes_max}; use larger pods or fewer of them",
    )


def _has_room_by_any_name(turn: Turn, wish: Wish) -> bool:
    """Whether a batch holds the gang, and would if its run had the longest of names: of those that
    are alike the names differ."""
    longest = replace(wish.run, name="x" * NAME_MAX)
    return not turn.is_too_large(turn.gang_bytes_at_most(longest, wish.want))


def _plan(turn: Turn, wish: Wish, refused: Refused, line: Line) -> Verdict:
    world, run = turn.world, wish.run
    if not world.policy.binder_enabled:
        # No start is planned that nobody may make, and nothing is cut for one.
        return Denied(refused=refused, then=Then.KEEP)
    is_sweep = run.spec.gang is Gang.GROUP
    want = replace(wish.want, groups=wish.want.groups[:1]) if is_sweep else wish.want
    size = turn.gang_bytes_at_most(run, want)
    if turn.is_too_large(size):
        # Nobody is cut for a run that could not be written down.
        return Denied(refused=_too_large(turn, size), then=Then.BLOCK)
    reservation = present(world, run)
    if reservation is not None and reservation.state is State.ACTIVATING:
        is_made = victims_are_gone(world, reservation, turn.now)
        return Denied(refused=refused, then=Then.GO_ON if is_made else Then.KEEP, wish=wish)
    if refused.reason.is_for_good:
        # Nobody is cut for a run that would not fit if it were alone.
        return Denied(refused=refused, then=Then.BLOCK)
    place = line.places.take(run, refused)
    if not place.is_planned:
        return InLine(refused=refused, place=place)
    turn.agenda.forget(run.uid)
    return Planned(wish=wish, refused=refused, plan=plan_for(turn, wish, refused, line))
