"""Queries about a run's open leases and their pods, and functions that tell leases to end.

Shared by everything in `control` that ends leases: whether the GPUs are really free and since when,
and how a whole unit is told to stop.
"""

from leasehold.control.turn import Turn
from leasehold.core.facts import Closed, ClosureReason, Lease, Pod, Role, Uid
from leasehold.core.units import Instant, Millis
from leasehold.core.world.book import WHOLE, Attempt
from leasehold.core.world.width import open_leases
from leasehold.core.world.world import World


def pod_of(world: World, lease: Lease) -> Pod | None:
    return world.pods.get(f"{lease.namespace}/{lease.pod}") if lease.pod else None


def is_gone(world: World, lease: Lease) -> bool:
    """Return whether no process of the lease's pod can still use its GPUs."""
    if lease.role is Role.SPARE:
        return True
    pod = pod_of(world, lease)
    return pod is None or pod.has_ended


def gone_at(turn: Turn, lease: Lease) -> Instant:
    """Return when the GPUs were released, as the node reported it."""
    pod = pod_of(turn.world, lease)
    if pod is not None and pod.finished_at is not None:
        return pod.finished_at
    return turn.world.finished_at.get(f"{lease.namespace}/{lease.pod}", turn.now)


def is_bound(world: World, uid: Uid, unit: int, attempt: int) -> bool:
    """Return whether all pods of this attempt were once accepted by their nodes."""
    return world.bound.get((uid, unit), 0) >= attempt


def live_units(world: World, uid: Uid) -> list[tuple[int, Attempt]]:
    """Return the run's units with open leases, each with its present attempt."""
    book = world.books.get(uid)
    if book is None:
        return []
    found = ((key, unit.last) for key, unit in sorted(book.units.items()))
    return [(key, last) for key, last in found if last is not None and last.open]


def leases_not_ending(world: World, uid: Uid, unit: int = WHOLE) -> list[Lease]:
    """Return the open leases of a unit that are not ending."""
    return [
        lease
        for lease in open_leases(world, uid)
        if lease.ending is None and (unit == WHOLE or world.unit_of(uid, lease.group) == unit)
    ]


def end_all(
    turn: Turn, leases: list[Lease], why: Closed | ClosureReason, *, grace: Millis | None = None
) -> None:
    """Mark these leases as ending.

    Each gets the grace period of its run, or `grace` if that is shorter.
    """
    for lease in leases:
        assert lease.ending is None, lease.name
        run = turn.world.runs.get(lease.uid)
        allowed = run.spec.grace if run is not None else 0
        said = why if isinstance(why, ClosureReason) else ClosureReason(reason=why)
        turn.mark(lease, said, grace=allowed if grace is None else min(grace, allowed))
        turn.again = True


def end_unit(turn: Turn, uid: Uid, unit: int, why: Closed | ClosureReason) -> None:
    """Mark every open lease of a unit as ending, except those that are ending already."""
    end_all(turn, leases_not_ending(turn.world, uid, unit), why)
