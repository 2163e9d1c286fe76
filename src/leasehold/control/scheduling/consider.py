"""consider — what becomes of one run in the queue. It writes nothing down but the plan's entries on
the calendar of the turn, which the runs behind respect.

The queue applies the verdict; the question `plan` prints it.
"""

from enum import Enum

from msgspec.structs import replace

from leasehold.control.cuts.publish import Announced, can_publish
from leasehold.control.reservations import present
from leasehold.control.running.life import (
    BIND_FAILING,
    Standing,
    Where,
    units_of,
    unstarted,
    where_is,
)
from leasehold.control.scheduling.family import TakenBack, take_back
from leasehold.control.scheduling.holds import (
    Hold,
    ends_at,
    groups_held_for,
    hold_of,
    start_where_held,
    still_paid,
)
from leasehold.control.scheduling.motion import must_wait
from leasehold.control.scheduling.plans import Plan, enter, plan_for
from leasehold.control.scheduling.queue_pass import PlaceInQueue, QueuePass, is_plain
from leasehold.control.scheduling.wishes import (
    groups_short_of_minimum,
    next_attempts,
    node_changed_since_blocked,
    waiting_groups,
    wish_for,
)
from leasehold.control.turn import Turn
from leasehold.control.undecided import why_put_aside
from leasehold.core.decisions.admit import Wish, admit, as_found_by, owner_allowed
from leasehold.core.decisions.calendar import uid_beside
from leasehold.core.decisions.ever import never_fits, never_paid
from leasehold.core.decisions.fill import fill
from leasehold.core.decisions.hours import has_ample_hours
from leasehold.core.facts import Gang, Record, Run
from leasehold.core.reservations import State
from leasehold.core.units import plural
from leasehold.core.verdicts import Admitted, Refusal, Refused
from leasehold.core.world.width import group_count, minimum_gpus, starting_gpus

NAME_MAX = 253  # characters of a Run's name


class Started(Record):
    """All of it, or one group of a sweep: the others are considered again."""

    wish: Wish
    plan: Admitted
    left: tuple[int, ...] = ()  # groups


class Planned(Record):
    """It cannot start now. `more`: the groups of a sweep beyond its minimum, with their plans."""

    wish: Wish
    refused: Refused
    plan: Plan | None  # None: only groups beyond the minimum wait
    more: tuple[tuple[Wish, Plan], ...] = ()


class TakesBack(Record):
    """Its family gives back its owner's envelope, and it starts (O5)."""

    wish: Wish
    refused: Refused
    taken: TakenBack


class PutOff(Record):
    """Its family gives back what it must once all is still: no run behind may start before (Q2)."""

    refused: Refused


class InQueue(Record):
    """Enough others are planned before it."""

    refused: Refused
    place: PlaceInQueue
    wish: Wish | None = None  # None: it is like another run that was just refused

    @property
    def is_like_another(self) -> bool:
        return self.wish is None


class Holds(Record):
    """An activation holds its place, which is not free yet."""

    hold: Hold
    wish: Wish | None  # what it waits for; None while too few of its groups may start
    refused: Refused
    is_over: bool  # the hold is given up


class Then(Enum):
    """What becomes of the reservation of a run that is denied."""

    KEEP = "keep"
    CANCEL = "cancel"
    BLOCK = "block"


class Denied(Record):
    """For a reason that has nothing to do with GPUs or money, or for good."""

    refused: Refused
    then: Then


Verdict = Started | Planned | TakesBack | PutOff | InQueue | Holds | Denied


def consider(
    turn: Turn, run: Run, passing: QueuePass, *, left: tuple[int, ...] = (), begun: int = 0
) -> Verdict | None:
    """None: nothing of it waits. `left`: the groups of a sweep that still wait after others have
    started in this walk. `begun`: how many have started in a rehearsal, which opens no leases."""
    known = passing.answer(turn, run)
    if known is not None and passing.is_full(run, known):
        # Most of a long queue: behind all that are planned, and like one that was just refused.
        place = passing.take_place(run, known)
        return InQueue(refused=known, place=place)
    if not left:
        denied = _not_now(turn, run)
        if denied is not None:
            return denied
        hold = hold_of(turn.world, run)
        if hold is not None:
            return _consider_held(turn, run, hold)
    groups = left or waiting_groups(turn.world, run, turn.now)
    if not groups:
        return None
    if run.spec.gang is Gang.GROUP:
        return _consider_sweep(turn, run, passing, groups, begun=begun)
    return _consider_whole(turn, run, passing, known)


def _consider_whole(turn: Turn, run: Run, passing: QueuePass, known: Refused | None) -> Verdict:
    """Q3: the largest width of its grid that fits; plans are made for its minimum."""
    wish: Wish | None = None
    answer: Admitted | Refused | None = known
    for groups in _widths(run):
        wish = wish_for(turn.world, run, groups)
        if known is None:
            answer = _try(turn, wish)
            if isinstance(answer, Admitted):
                return Started(wish=wish, plan=answer)
    assert wish is not None, run.key
    assert isinstance(answer, Refused), run.key
    return _wait(turn, wish, answer, passing, is_known=known is not None)


def _widths(run: Run) -> list[tuple[int, ...]]:
    spec, grid = run.spec, run.spec.malleable
    step = grid.step_gpus if grid is not None else spec.total_gpus
    widths = range(starting_gpus(spec), minimum_gpus(spec) - 1, -step)
    return [tuple(range(group_count(spec, width))) for width in widths]


def _consider_sweep(
    turn: Turn, run: Run, passing: QueuePass, groups: tuple[int, ...], *, begun: int
) -> Verdict | None:
    """G1, G2: each group like a run of its own, lowest index first."""
    world = turn.world
    most = _more_at_once(turn, run) - begun
    if most <= 0:
        return None
    wish = wish_for(world, run, groups[:1])
    answer = _try(turn, wish)
    if isinstance(answer, Admitted):
        return Started(wish=wish, plan=answer, left=groups[1:])
    wanted = groups[:most]
    short = groups_short_of_minimum(world, run, wanted, begun=begun)
    more = wanted[len(short) :]
    if short:
        waiting = _wait(turn, wish_for(world, run, short), answer, passing)
        if not isinstance(waiting, Planned):
            return waiting
    else:
        waiting = Planned(wish=wish, refused=answer, plan=None)
    return replace(waiting, more=_plans_beyond(turn, run, passing, answer, more))


def _more_at_once(turn: Turn, run: Run) -> int:
    """How many more groups may run at once: `desiredTotalGPUs` bounds them."""
    most = group_count(run.spec, starting_gpus(run.spec))
    book = turn.world.books.get(run.uid)  # the others of a large sweep need not be looked at
    started = book.units if book is not None else ()
    return most - sum(where_is(turn.world, run, key).standing is Standing.LIVE for key in started)


def _plans_beyond(
    turn: Turn, run: Run, passing: QueuePass, refused: Refused, groups: tuple[int, ...]
) -> tuple[tuple[Wish, Plan], ...]:
    found: list[tuple[Wish, Plan]] = []
    for group in groups:
        if not passing.take_place(run, refused).is_planned:
            break
        wish = wish_for(turn.world, run, (group,))
        wish = replace(wish, run=replace(run, uid=uid_beside(run.uid, group)))
        plan = plan_for(turn, wish, refused, passing, is_first=False)
        if plan is None:
            break  # nor is a start of the next one known
        enter(turn, wish, plan)
        found.append((wish, plan))
    return tuple(found)


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
        return _back_off(turn, run, waiting[0])
    return None


def _backs_off(turn: Turn, run: Run, where: Where) -> bool:
    if node_changed_since_blocked(turn.world, run, where):
        return False
    return where.retry_at > (turn.now if turn.time_trusted else 0)


def _back_off(turn: Turn, run: Run, where: Where) -> Denied:
    """A run in back-off has no plan; what an activation holds for it stays (B2, A4)."""
    is_held = run.uid in turn.world.activating
    pause = Then.KEEP if is_held else Then.CANCEL
    if where.why != BIND_FAILING:
        refused = Refused(reason=Refusal.RETRYING, remedy=f"{where.why}: tried again after a pause")
        return Denied(refused=refused, then=pause)
    refused = Refused(
        reason=Refusal.BIND_FAILING,
        remedy=f"{plural(where.rejected, 'attempt')} to bind it "
        f"{'was' if where.rejected == 1 else 'were'} rejected; tried again after a pause",
    )
    is_blocked = where.rejected >= turn.world.policy.bind_attempts
    return Denied(refused=refused, then=Then.BLOCK if is_blocked else pause)


# GPUs and money.


def _consider_held(turn: Turn, run: Run, hold: Hold) -> Verdict | None:
    """A4: it starts in the held place, with the held payers, as soon as that is free."""
    world = turn.world
    refused = Refused(
        reason=Refusal.CAPACITY,
        remedy="its GPUs are held; it starts when the preempted runs have ended",
    )
    groups = groups_held_for(world, hold, turn.now)
    if not groups:
        return Holds(
            hold=hold, wish=None, refused=refused, is_over=turn.now >= ends_at(world, hold)
        )
    wish = wish_for(world, run, groups)
    if not still_paid(turn, hold, wish):
        return Holds(hold=hold, wish=wish, refused=refused, is_over=True)
    plan = start_where_held(turn, hold, wish)
    if plan is not None and world.policy.binder_enabled:
        return Started(wish=wish, plan=plan)
    is_over = turn.now >= ends_at(world, hold)
    return Holds(hold=hold, wish=wish, refused=refused, is_over=is_over)


def _try(turn: Turn, wish: Wish) -> Admitted | Refused:
    """Funded, placed, and small enough to be written down."""
    world = turn.world
    if not world.policy.binder_enabled:
        return Refused(
            reason=Refusal.BINDER_DISABLED,
            remedy="binder.enabled is false, so no run is started",
        )
    answer = admit(world, wish, turn.calendar, start=turn.now, now=turn.now)
    # On spares it would not be asked which nodes its volumes can be reached from.
    may_fill = wish.run.spec.opportunistic and wish.want.only is None
    if isinstance(answer, Refused) and may_fill and not answer.reason.is_about_money:
        filled = _try_spares(turn, wish)
        answer = filled if isinstance(filled, Admitted) else answer
    if isinstance(answer, Refused):
        return answer
    attempts = next_attempts(world, wish.run, wish.want.groups)
    size = turn.bytes_too_many(wish.run, answer, attempts)
    return answer if size is None else _too_large(turn, size)


def _try_spares(turn: Turn, wish: Wish) -> Admitted | Refused:
    """On top of spares, and free GPUs beside them, that no entry counts on."""
    world = turn.world
    with world.what_if.opened():
        as_found_by(world, wish, turn.calendar, start=turn.now)
        return fill(world, wish, turn.calendar, now=turn.now)


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


def _wait(
    turn: Turn, wish: Wish, refused: Refused, passing: QueuePass, *, is_known: bool = False
) -> Verdict:
    """`is_known`: the refusal is that of a run just like it."""
    world, run = turn.world, wish.run
    if not world.policy.binder_enabled:
        return Denied(refused=refused, then=Then.KEEP)  # no start is planned that may not be made
    never = _never(turn, wish, refused, passing)
    if never is not None:
        return Denied(refused=never, then=Then.BLOCK)
    if not is_known and is_plain(turn, run) and _has_room_by_any_name(turn, wish):
        refused = passing.remember(turn, run, refused)
    place = passing.take_place(run, refused)
    if not place.is_planned:
        return InQueue(refused=refused, place=place, wish=wish)
    announced = _family_rule_due(turn, wish)
    if announced is not None:
        if must_wait(turn):
            return PutOff(refused=refused)
        taken = _take_back(turn, wish, announced)
        if taken is not None:
            return TakesBack(wish=wish, refused=refused, taken=taken)
    plan = plan_for(turn, wish, refused, passing, is_first=True)
    if plan is not None and plan.state is State.PENDING:
        enter(turn, wish, plan)
    return Planned(wish=wish, refused=refused, plan=plan)


def _never(turn: Turn, wish: Wish, refused: Refused, passing: QueuePass) -> Refused | None:
    """Q11: why it could not start even if nothing else ran; no run is cut for it."""
    world, run = turn.world, wish.run
    if passing.possible.get(run.uid) is run:
        return None
    is_sweep = run.spec.gang is Gang.GROUP
    want = replace(wish.want, groups=wish.want.groups[:1]) if is_sweep else wish.want
    size = turn.gang_bytes_at_most(run, want)
    if turn.is_too_large(size):
        return _too_large(turn, size)
    empty = passing.empty_accounts(turn)
    never = never_fits(world, wish) or never_paid(world, wish, empty, now=turn.now)
    asked = refused.payers_asked
    if never is None and all(has_ample_hours(world, wish, key, now=turn.now) for key in asked):
        passing.possible[run.uid] = run
    return never


def _family_rule_due(turn: Turn, wish: Wish) -> Announced | None:
    """O5: once its notice is over, the family rule is tried in every walk."""
    found = present(turn.world, wish.run)
    if found is None or not found.by_family or found.by_family > turn.now or not turn.time_trusted:
        return None
    return Announced(found.subject, batch=found.batch, commitment=found.commitment)


def _take_back(turn: Turn, wish: Wish, subject: Announced) -> TakenBack | None:
    if not can_publish(turn, subject):
        return None
    return take_back(turn, wish, seeder=lambda: subject.seed(turn))
