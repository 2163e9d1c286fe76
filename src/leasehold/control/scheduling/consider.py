"""consider: decide what happens to one run in the queue.

It returns a verdict and changes only the calendar of the turn, where it enters the run's plan: the
runs behind must respect that plan. The queue applies the verdict; the question `plan` prints it.
"""

from enum import Enum

from msgspec.structs import replace

from leasehold.control.preemption.publish import Announced, can_publish
from leasehold.control.reservations import present
from leasehold.control.running.life import (
    BIND_FAILING,
    UnitStanding,
    UnitState,
    units_of,
    unstarted,
    where_is,
)
from leasehold.control.scheduling.family import (
    FamilySettlement,
    leases_to_give_back,
    take_back,
)
from leasehold.control.scheduling.holds import (
    Hold,
    ends_at,
    groups_held_for,
    hold_of,
    start_where_held,
    still_paid,
)
from leasehold.control.scheduling.plans import Plan, enter, plan_for
from leasehold.control.scheduling.queue_pass import PlaceInQueue, QueuePass, is_plain
from leasehold.control.scheduling.requests import (
    groups_short_of_minimum,
    next_attempts,
    node_changed_since_blocked,
    start_request_for,
    waiting_groups,
)
from leasehold.control.scheduling.settling import must_wait
from leasehold.control.turn import Turn
from leasehold.control.undecided import why_put_aside
from leasehold.core.admission.admit import admit, as_found_by, owner_allowed
from leasehold.core.admission.fill import fill
from leasehold.core.admission.possible import never_fits, never_paid
from leasehold.core.calendar.entries import uid_beside
from leasehold.core.facts import Gang, Record, Run
from leasehold.core.funding.hours import has_ample_hours
from leasehold.core.requests import StartRequest
from leasehold.core.reservations import State
from leasehold.core.units import plural
from leasehold.core.verdicts import Admitted, Refusal, Refused
from leasehold.core.world.width import group_count, minimum_gpus, starting_gpus

NAME_MAX = 253  # characters of a Run's name


class Started(Record):
    """A run that starts now: all of it, or one group of a sweep."""

    request: StartRequest
    plan: Admitted
    left: tuple[int, ...] = ()  # groups of the sweep that must be considered next


class Planned(Record):
    """A run that cannot start now and is within the depth (Q9), with its plan.

    `more`: requests and plans of a sweep's groups beyond its minimum (G2).
    """

    request: StartRequest
    refused: Refused
    # None if only groups beyond the minimum wait, or if an opportunistic run has no known start
    plan: Plan | None
    more: tuple[tuple[StartRequest, Plan], ...] = ()


class StartsByFamilyRule(Record):
    """A run that starts because its family gives back its owner's envelope (O5)."""

    request: StartRequest
    refused: Refused
    taken: FamilySettlement


class Postponed(Record):
    """A run to which the family rule applies now, but in a turn that still opens or closes leases.

    The rule is applied in a later turn, and no run behind may start before (Q2).
    """

    refused: Refused


class InQueue(Record):
    """A run without a plan, because the depth is used up by the runs ahead (Q9)."""

    refused: Refused
    place: PlaceInQueue
    request: StartRequest | None = None  # None: an equal run was refused in this walk

    @property
    def is_like_another(self) -> bool:
        return self.request is None


class WaitsForHold(Record):
    """A run for which its activation holds a place, but not all of the place is free yet (A4)."""

    hold: Hold
    request: StartRequest | None  # None while too few of its groups may start
    refused: Refused
    is_over: bool  # the hold must be given up


class ReservationChange(Enum):
    """What happens to the reservation of a run that is denied."""

    KEEP = "keep"
    CANCEL = "cancel"
    BLOCK = "block"


class Denied(Record):
    """A run that may not start now for a reason other than GPUs or money, or that can never
    start."""

    refused: Refused
    then: ReservationChange


Verdict = Started | Planned | StartsByFamilyRule | Postponed | InQueue | WaitsForHold | Denied


def consider(
    turn: Turn, run: Run, walk: QueuePass, *, left: tuple[int, ...] = (), begun: int = 0
) -> Verdict | None:
    """Return the verdict on a run, or None if no part of it waits.

    `left`: the groups of a sweep that still wait after other groups of it have started in this
    walk.
    `begun`: the number of groups that a rehearsal has started; a rehearsal opens no leases.
    """
    known = walk.answer(turn, run)
    if known is not None and walk.is_full(run, known):
        # True for most of a long queue: the depth is used up, and an equal run was just refused.
        place = walk.take_place(run, known)
        return InQueue(refused=known, place=place)
    if not left:
        denied = _denied(turn, run)
        if denied is not None:
            return denied
        hold = hold_of(turn.world, run)
        if hold is not None:
            return _consider_held(turn, run, hold)
    groups = left or waiting_groups(turn.world, run, turn.now)
    if not groups:
        return None
    if run.spec.gang is Gang.GROUP:
        return _consider_sweep(turn, run, walk, groups, begun=begun)
    return _consider_whole(turn, run, walk, known)


def _consider_whole(turn: Turn, run: Run, walk: QueuePass, known: Refused | None) -> Verdict:
    """Return the verdict on a gang: it starts at the largest width of its grid that fits (Q3).

    If none fits, the run is planned at its minimum. `known`: the refusal of an equal run.
    """
    request: StartRequest | None = None
    answer: Admitted | Refused | None = known
    for groups in _widths(run):
        request = start_request_for(turn.world, run, groups)
        if known is None:
            answer = _try(turn, request)
            if isinstance(answer, Admitted):
                return Started(request=request, plan=answer)
    assert request is not None, run.key
    assert isinstance(answer, Refused), run.key
    return _wait(turn, request, answer, walk, is_known=known is not None)


def _widths(run: Run) -> list[tuple[int, ...]]:
    """Return the groups for each width of the run's grid, widest first."""
    spec, grid = run.spec, run.spec.malleable
    step = grid.step_gpus if grid is not None else spec.total_gpus
    widths = range(starting_gpus(spec), minimum_gpus(spec) - 1, -step)
    return [tuple(range(group_count(spec, width))) for width in widths]


def _consider_sweep(
    turn: Turn, run: Run, walk: QueuePass, groups: tuple[int, ...], *, begun: int
) -> Verdict | None:
    """Return the verdict on the next group of a sweep (G1).

    If that group cannot start, the verdict covers all waiting groups. Those that the sweep still
    needs to reach its minimum are planned together, and each further one alone (G2).
    """
    world = turn.world
    most = _groups_still_allowed(turn, run) - begun
    if most <= 0:
        return None
    request = start_request_for(world, run, groups[:1])
    answer = _try(turn, request)
    if isinstance(answer, Admitted):
        return Started(request=request, plan=answer, left=groups[1:])
    wanted = groups[:most]
    short = groups_short_of_minimum(world, run, wanted, begun=begun)
    more = wanted[len(short) :]
    if short:
        waiting = _wait(turn, start_request_for(world, run, short), answer, walk)
        if not isinstance(waiting, Planned):
            return waiting
    else:
        waiting = Planned(request=request, refused=answer, plan=None)
    return replace(waiting, more=_plans_beyond(turn, run, walk, answer, more))


def _groups_still_allowed(turn: Turn, run: Run) -> int:
    """Return how many more groups of a sweep may start: `desiredTotalGPUs` limits them (G2)."""
    most = group_count(run.spec, starting_gpus(run.spec))
    book = turn.world.books.get(run.uid)  # only groups that had a lease: a sweep may be large
    started = book.units if book is not None else ()
    return most - sum(
        where_is(turn.world, run, key).standing is UnitStanding.LIVE for key in started
    )


def _plans_beyond(
    turn: Turn, run: Run, walk: QueuePass, refused: Refused, groups: tuple[int, ...]
) -> tuple[tuple[StartRequest, Plan], ...]:
    """Plan each of these groups alone by Q4 (G2). Enter the plans on the calendar and return them.

    Stops at the depth (Q9) and at the first group without a known start.
    """
    found: list[tuple[StartRequest, Plan]] = []
    for group in groups:
        if not walk.take_place(run, refused).is_planned:
            break
        request = start_request_for(turn.world, run, (group,))
        request = replace(request, run=replace(run, uid=uid_beside(run.uid, group)))
        plan = plan_for(turn, request, refused, walk, is_first=False)
        if plan is None:
            break  # the next group would not have a known start either
        enter(turn, request, plan)
        found.append((request, plan))
    return tuple(found)


# Reasons that have nothing to do with GPUs or money.


def _denied(turn: Turn, run: Run) -> Denied | None:
    """Return the verdict on a run that is quarantined, may not charge its owner, or backs off.

    Returns None if none of this is the case.
    """
    if run.uid in turn.quarantined:
        return Denied(refused=why_put_aside(turn.world, run.uid), then=ReservationChange.CANCEL)
    not_allowed = owner_allowed(turn.world, run)
    if not_allowed is not None:
        return Denied(refused=not_allowed, then=ReservationChange.CANCEL)
    alike = unstarted(turn.world, run)
    units = [alike] if alike is not None else units_of(turn.world, run).values()
    waiting = [where for where in units if where.standing is UnitStanding.WAITING]
    for where in waiting:
        turn.wake(where.retry_at)
    if waiting and all(_backs_off(turn, run, where) for where in waiting):
        return _back_off(turn, run, waiting[0])
    return None


def _backs_off(turn: Turn, run: Run, where: UnitState) -> bool:
    """Return whether the unit pauses before its next try (B2, B5)."""
    if node_changed_since_blocked(turn.world, run, where):
        return False
    return where.retry_at > (turn.now if turn.time_trusted else 0)


def _back_off(turn: Turn, run: Run, where: UnitState) -> Denied:
    """Return the verdict on a run in back-off: it has no plan, but keeps its hold (B2, A4).

    After too many rejected binds it is Blocked (B3).
    """
    is_held = run.uid in turn.world.activating
    pause = ReservationChange.KEEP if is_held else ReservationChange.CANCEL
    if where.why != BIND_FAILING:
        refused = Refused(reason=Refusal.RETRYING, remedy=f"{where.why}: tried again after a pause")
        return Denied(refused=refused, then=pause)
    refused = Refused(
        reason=Refusal.BIND_FAILING,
        remedy=f"{plural(where.rejected, 'attempt')} to bind it "
        f"{'was' if where.rejected == 1 else 'were'} rejected; tried again after a pause",
    )
    is_blocked = where.rejected >= turn.world.policy.bind_attempts
    return Denied(refused=refused, then=ReservationChange.BLOCK if is_blocked else pause)


# GPUs and money.


def _consider_held(turn: Turn, run: Run, hold: Hold) -> Verdict | None:
    """Return the verdict on a run whose place is held: it starts as soon as the place is free.

    It starts in that place and with the held payers, even if another start is possible (A4).
    """
    world = turn.world
    refused = Refused(
        reason=Refusal.CAPACITY,
        remedy="its GPUs are held; it starts when the preempted runs have ended",
    )
    groups = groups_held_for(world, hold, turn.now)
    if not groups:
        return WaitsForHold(
            hold=hold, request=None, refused=refused, is_over=turn.now >= ends_at(world, hold)
        )
    request = start_request_for(world, run, groups)
    if not still_paid(turn, hold, request):
        return WaitsForHold(hold=hold, request=request, refused=refused, is_over=True)
    plan = start_where_held(turn, hold, request)
    if plan is not None and world.policy.binder_enabled:
        return Started(request=request, plan=plan)
    is_over = turn.now >= ends_at(world, hold)
    return WaitsForHold(hold=hold, request=request, refused=refused, is_over=is_over)


def _try(turn: Turn, request: StartRequest) -> Admitted | Refused:
    """Return payers and places for a start now, or the refusal.

    The leases of the start must also fit into one batch. An opportunistic run may use spares (F1).
    """
    world = turn.world
    if not world.policy.binder_enabled:
        return Refused(
            reason=Refusal.BINDER_DISABLED,
            remedy="binder.enabled is false, so no run is started",
        )
    answer = admit(world, request, turn.calendar, start=turn.now, now=turn.now)
    # `fill` does not check which nodes can reach the run's volumes.
    may_fill = request.run.spec.opportunistic and request.placement.only is None
    if isinstance(answer, Refused) and may_fill and not answer.reason.is_about_money:
        filled = _try_spares(turn, request)
        answer = filled if isinstance(filled, Admitted) else answer
    if isinstance(answer, Refused):
        return answer
    attempts = next_attempts(world, request.run, request.placement.groups)
    size = turn.bytes_too_many(request.run, answer, attempts)
    return answer if size is None else _too_large(turn, size)


def _try_spares(turn: Turn, request: StartRequest) -> Admitted | Refused:
    """Return places on other runs' spares and on free GPUs that no plan or hold needs (F1, F2)."""
    world = turn.world
    with world.what_if.opened():
        as_found_by(world, request, turn.calendar, start=turn.now)
        return fill(world, request, turn.calendar, now=turn.now)


def _too_large(turn: Turn, size: int) -> Refused:
    """Return the refusal of a gang whose leases need `size` bytes, more than a batch holds."""
    return Refused(
        reason=Refusal.GANG_TOO_LARGE,
        remedy=f"its leases need {size} bytes in one ledger batch, which holds "
        f"{turn.world.policy.batch_bytes_max}; use larger pods or fewer of them",
    )


def _fits_with_longest_name(turn: Turn, request: StartRequest) -> bool:
    """Return whether a batch could hold the gang even if its run had the longest possible name.

    Only then does a refusal hold for all equal runs, whose names differ.
    """
    longest = replace(request.run, name="x" * NAME_MAX)
    return not turn.is_too_large(turn.gang_bytes_at_most(longest, request.placement))


def _wait(
    turn: Turn,
    request: StartRequest,
    refused: Refused,
    walk: QueuePass,
    *,
    is_known: bool = False,
) -> Verdict:
    """Return the verdict on a run that cannot start now.

    The run can never start, or it is in the queue without a plan, or it is planned.
    `refused`: why the run cannot start now. `is_known`: that reason was found for an equal run.
    """
    world, run = turn.world, request.run
    if not world.policy.binder_enabled:
        # Plan no start, because none may be made.
        return Denied(refused=refused, then=ReservationChange.KEEP)
    never = _never(turn, request, refused, walk)
    if never is not None:
        return Denied(refused=never, then=ReservationChange.BLOCK)
    if not is_known and is_plain(turn, run) and _fits_with_longest_name(turn, request):
        refused = walk.remember(turn, run, refused)
    place = walk.take_place(run, refused)
    if not place.is_planned:
        return InQueue(refused=refused, place=place, request=request)
    family = leases_to_give_back(turn, request, walk)
    announced = _family_rule_due(turn, request) if family else None
    if announced is not None:
        if must_wait(turn):
            return Postponed(refused=refused)
        taken = _take_back(turn, request, announced)
        if taken is not None:
            return StartsByFamilyRule(request=request, refused=refused, taken=taken)
    plan = plan_for(turn, request, refused, walk, family=family, is_first=True)
    if plan is not None and plan.state is State.PENDING:
        enter(turn, request, plan)
    return Planned(request=request, refused=refused, plan=plan)


def _never(turn: Turn, request: StartRequest, refused: Refused, walk: QueuePass) -> Refused | None:
    """Return why the run could not start even if nothing else ran; None if it could (Q11)."""
    world, run = turn.world, request.run
    if walk.possible.get(run.uid) is run:
        return None
    is_sweep = run.spec.gang is Gang.GROUP
    placement = (
        replace(request.placement, groups=request.placement.groups[:1])
        if is_sweep
        else request.placement
    )
    size = turn.gang_bytes_at_most(run, placement)
    if turn.is_too_large(size):
        return _too_large(turn, size)
    empty = walk.empty_accounts(turn)
    never = never_fits(world, request) or never_paid(world, request, empty, now=turn.now)
    asked = refused.payers_asked
    if never is None and all(has_ample_hours(world, request, key, now=turn.now) for key in asked):
        walk.possible[run.uid] = run
    return never


def _family_rule_due(turn: Turn, request: StartRequest) -> Announced | None:
    """Return the announcement of the run's start by the family rule, if its notice is over.

    From then on the rule is tried in every walk (Q6, O5). The family must have leases to give back.
    """
    found = present(turn.world, request.run)
    if found is None or not found.by_family or found.by_family > turn.now or not turn.time_trusted:
        return None
    return Announced(found.subject, batch=found.batch, commitment=found.commitment)


def _take_back(turn: Turn, request: StartRequest, subject: Announced) -> FamilySettlement | None:
    """Return how the family gives the envelope back; None if the run would not start even then."""
    if not can_publish(turn, subject):
        return None
    return take_back(turn, request, seeder=lambda: subject.seed(turn))
