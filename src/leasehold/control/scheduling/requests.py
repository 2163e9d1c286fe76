"""Requests of waiting runs: which groups may start now, where, and with which attempt numbers."""

from collections.abc import Sequence

from msgspec.structs import replace

from leasehold.control.running.elastic import borrowed_gpus
from leasehold.control.running.life import (
    UnitStanding,
    UnitState,
    unit_keys,
    units_of,
    unstarted,
    where_is,
)
from leasehold.core.facts import Cause, Gang, Run
from leasehold.core.placement.pack import placement_request_for
from leasehold.core.requests import StartRequest
from leasehold.core.units import Instant
from leasehold.core.world.width import group_count, minimum_gpus, own_domains, starting_gpus
from leasehold.core.world.world import World


def waiting_groups(world: World, run: Run, now: Instant) -> tuple[int, ...]:
    """Return the groups that may start now: all of a gang, or the waiting ones of a sweep."""

    def is_ready(where: UnitState) -> bool:
        is_due = where.retry_at <= now or node_changed_since_blocked(world, run, where)
        return where.standing is UnitStanding.WAITING and is_due

    alike = unstarted(world, run)
    ready: Sequence[int]
    if alike is not None:
        ready = unit_keys(run) if is_ready(alike) else ()
    else:
        ready = [key for key, where in units_of(world, run).items() if is_ready(where)]
    if run.spec.gang is Gang.GROUP:
        return tuple(ready)
    return tuple(range(group_count(run.spec, starting_gpus(run.spec)))) if ready else ()


def all_waiting_groups(world: World, run: Run) -> tuple[int, ...]:
    """Return all waiting groups of a sweep, including groups that pause before a retry."""
    alike = unstarted(world, run)
    if alike is not None:
        return tuple(unit_keys(run)) if alike.standing is UnitStanding.WAITING else ()
    units = units_of(world, run)
    return tuple(key for key, where in units.items() if where.standing is UnitStanding.WAITING)


def node_changed_since_blocked(world: World, run: Run, where: UnitState) -> bool:
    """Return whether a node has changed since the run's binds were blocked.

    If so, the run may try again (B3).
    """
    since = world.memory.blocked_binds.get(run.uid)
    blocked = where.rejected >= world.policy.bind_attempts and since is not None
    return blocked and since != world.node_changes


def groups_short_of_minimum(
    world: World, run: Run, waiting: tuple[int, ...], *, begun: int = 0
) -> tuple[int, ...]:
    """Return the groups that a sweep still needs to reach its minimum. Only these are planned by
    Q5 (G2).

    `begun`: the number of groups that a rehearsal has started; they have no leases.
    """
    if run.spec.gang is Gang.RUN:
        return waiting
    needed = minimum_gpus(run.spec) // run.spec.group_gpus - begun
    book = world.books.get(run.uid)
    for key in book.units if book else ():
        if needed <= 0:
            break  # usually at once; a sweep may have many groups
        needed -= where_is(world, run, key).standing is UnitStanding.LIVE
    return waiting[: max(0, needed)]


def start_request_for(
    world: World, run: Run, groups: tuple[int, ...], within: tuple[str, ...] = ()
) -> StartRequest:
    """Return the request to start these groups. `within`: only these domains, if any are given.

    Groups that start later prefer the domains of the groups that run. If groups may not spread,
    they may use only those domains (G3).
    """
    own = own_domains(world, run.uid)
    chooses_domain = run.spec.gang is Gang.GROUP and not run.spec.spread and not own
    placement = placement_request_for(
        world, run, groups, own_domains=own, last=rejecting_nodes(world, run)
    )
    return StartRequest(
        run=run,
        placement=replace(placement, within=own if own and not placement.spread else within),
        span=run.spec.max_duration,
        borrowed_already=borrowed_gpus(world, run.uid),
        waiting=len(all_waiting_groups(world, run)) if chooses_domain else 0,
    )


def next_attempts(world: World, run: Run, groups: tuple[int, ...]) -> dict[int, int]:
    """Return the next attempt number of each group. Attempts are counted for each unit (B5)."""
    book = world.books.get(run.uid)
    numbers = {}
    for group in groups:
        unit = book.units.get(world.unit_of(run.uid, group)) if book else None
        last = unit.last if unit else None
        numbers[group] = last.number + 1 if last else 1
    return numbers


def rejecting_nodes(world: World, run: Run) -> tuple[str, ...]:
    """Return nodes that rejected a pod in the latest failed binds; they are tried last (P3)."""
    book = world.books.get(run.uid)
    if book is None:
        return ()
    rejected: set[tuple[int, int]] = set()  # (unit, attempt)
    for key, unit in book.units.items():
        rejected.update((key, attempt.number) for attempt in unit.failed_binds())
    if not rejected:
        return ()
    leases = (world.leases[name] for name in book.names)
    found = {
        lease.node
        for lease in leases
        if lease.cause is Cause.REJECTED
        and lease.ending is None  # gang mates ended with it, but rejected nothing
        and (world.unit_of(run.uid, lease.group), lease.attempt) in rejected
    }
    return tuple(sorted(found))
