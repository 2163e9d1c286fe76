"""What a lease's time was for: until when its pod was starting, and since when nothing was saved.

Asked when a lease is closed, and by whoever tells of leases.
"""

from leasehold.core.facts import Closed, Lease
from leasehold.core.units import FOREVER, Instant
from leasehold.core.world.world import World

_LOSSES = (Closed.FAIL, Closed.NODE_FAILURE, Closed.RANDOM_PREEMPT, Closed.RECLAIMED)


def starting_until(world: World, lease: Lease) -> Instant | None:
    """`FOREVER` if the pod of an open lease has not begun to run. None if that took no time, or
    nobody saw how long; a spare has no pod."""
    if lease.closed is not None:
        return lease.closed.began
    if not lease.pod or lease.pod_key not in world.began_at:
        return None
    began = world.began_at[lease.pod_key]
    if began is None:
        return FOREVER
    return began if began > lease.start else None


def saved_until(world: World, lease: Lease, why: Closed, end: Instant) -> Instant | None:
    """Of a lease that ends like this: its run checkpoints so often that all before this instant is
    saved. None if there is nothing to save, or nothing saved."""
    run = world.runs.get(lease.uid)
    if run is None or run.spec.checkpoint is None or why not in _LOSSES or not lease.pod:
        return None
    saved = end - run.spec.checkpoint
    return saved if saved > max(lease.start, starting_until(world, lease) or 0) else None
