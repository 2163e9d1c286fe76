"""Resize elastic runs to their desired width: shrink on request, grow if possible (E1, E2).

Runs grow after the queue was walked, in order of submission, as if behind every run in the queue.
Forced shrinks are decided by preemption, failures and drains.
"""

from msgspec.structs import replace

from leasehold.control.reasons import NoticeReason
from leasehold.control.running.open_leases import end_all, live_units
from leasehold.control.turn import Turn
from leasehold.core.admission.admit import admit, groups_at_most
from leasehold.core.admission.order import in_order
from leasehold.core.facts import Closed, Gang, Lease, Opened, Relation, Run, Uid
from leasehold.core.placement.pack import placement_request_for
from leasehold.core.placement.resize import groups_to_give_up, grow_targets, may_resize
from leasehold.core.requests import StartRequest
from leasehold.core.units import Millis, plural
from leasehold.core.verdicts import Admitted
from leasehold.core.world.width import (
    desired_gpus,
    free_indices,
    group_count,
    open_leases,
    own_domains,
    standing_groups,
)
from leasehold.core.world.world import World


def shrink_all(turn: Turn) -> None:
    """Shrink runs to the width that their users ask for (E2)."""
    for run in in_order(turn.world, turn.world.work.elastic):
        turn.about = run.uid
        if run.uid in turn.left_alone:
            continue
        groups = standing_groups(turn.world, run.uid)
        width = _width(groups)
        if not groups or width <= desired_gpus(run.spec):
            continue
        at = may_resize(turn.world, run.uid, turn.now)
        if at > turn.now or not turn.time_trusted:
            turn.world.work.alarm(run.uid, at)
            turn.wake(at)
            continue
        given_up = groups_to_give_up(groups, run.spec, width)
        leases = [
            lease
            for lease in open_leases(turn.world, run.uid)
            if lease.group in given_up and lease.ending is None
        ]
        end_all(turn, leases, Closed.SHRINK)
        turn.tell(
            "Run", run.key, NoticeReason.SHRINK, f"gives up groups {sorted(given_up)} as asked"
        )


def grow_all(turn: Turn) -> None:
    """Grow elastic runs in whole steps, as far as payers and GPUs allow (E1)."""
    world = turn.world
    if not world.policy.binder_enabled:
        return
    for run in in_order(world, world.work.elastic):
        if run.spec.gang is Gang.GROUP or run.uid in turn.quarantined:
            continue
        turn.about = run.uid
        groups = standing_groups(world, run.uid)
        width = _width(groups)
        is_narrow = groups and width < desired_gpus(run.spec)
        if is_narrow and _are_whole(run, groups) and not _is_ending(world, run.uid):
            at = may_resize(world, run.uid, turn.now)
            if at > turn.now or not turn.time_trusted:
                world.work.alarm(run.uid, at)
                turn.wake(at)
                continue
            _grow(turn, run, groups, width)


def _width(groups: dict[int, list[Lease]]) -> int:
    """Return the GPUs of these groups."""
    return sum(lease.gpus for leases in groups.values() for lease in leases)


def _is_ending(world: World, uid: Uid) -> bool:
    """Return whether part of the run is ending. Until that part is gone, the run must not grow."""
    return any(lease.ending is not None for lease in open_leases(world, uid))


def _are_whole(run: Run, groups: dict[int, list[Lease]]) -> bool:
    """Return whether all groups are complete.

    A group is incomplete while a lost pod waits for a filler to leave its spare.
    """
    return all(
        sum(lease.gpus for lease in leases) == run.spec.group_gpus for leases in groups.values()
    )


def _grow(turn: Turn, run: Run, groups: dict[int, list[Lease]], width: int) -> None:
    """Open groups for the largest width of the grid that fits, if any (E1)."""
    world = turn.world
    taken = {lease.group for lease in open_leases(world, run.uid)}
    every = free_indices(taken, group_count(run.spec, desired_gpus(run.spec) - width))
    widest = StartRequest(
        run=run,
        placement=placement_request_for(world, run, every, own_domains=own_domains(world, run.uid)),
        span=_span_left(turn, run),
        borrowed_already=borrowed_gpus(world, run.uid),
    )
    most: int | None = None
    for target in grow_targets(run.spec, width):
        fresh = every[: group_count(run.spec, target - width)]
        if most is not None and len(fresh) > most:
            continue  # these are more groups than free GPUs or payers allow
        request = replace(widest, placement=replace(widest.placement, groups=fresh))
        plan = admit(world, request, turn.calendar, start=turn.now, now=turn.now)
        if isinstance(plan, Admitted):
            attempt = next(iter(groups.values()))[0].attempt
            opened = turn.start(
                run, plan, attempts=dict.fromkeys(fresh, attempt), reason=Opened.GROW
            )
            if isinstance(opened, list):
                world.memory.note_trace(run.uid, plan.trace)
                turn.tell(
                    "Run",
                    run.key,
                    NoticeReason.GROW,
                    f"grows from {width} to {plural(target, 'GPU')}",
                )
                turn.again = True
                return
        elif most is None:
            most = groups_at_most(world, widest, turn.calendar, now=turn.now)


def _span_left(turn: Turn, run: Run) -> Millis | None:
    """Return how much of the attempt's limit is left; None without a limit."""
    if run.spec.max_duration is None:
        return None
    started = live_units(turn.world, run.uid)[0][1].started
    return max(1, started + run.spec.max_duration - turn.now)


def borrowed_gpus(world: World, uid: Uid) -> int:
    """Return the run's GPUs that borrowed money pays for, including spares, as `maxBorrowGPUs`
    counts them."""
    return sum(
        lease.gpus for lease in open_leases(world, uid) if lease.relation is Relation.BORROWED
    )
