"""What the time of a lease was used for: until when its pod was starting, and what was saved.

Used when a lease is closed, and by views of leases.
"""

from leasehold.core.facts import Closed, Lease
from leasehold.core.units import FOREVER, Instant
from leasehold.core.world.world import World

_LOSSES = (Closed.FAIL, Closed.NODE_FAILURE, Closed.RANDOM_PREEMPT, Closed.RECLAIMED)


def starting_until(world: World, lease: Lease) -> Instant | None:
    """Return when the pod started to run; FOREVER if it has not yet.

    None if starting took no time, if it was not observed, or for a spare, which has no pod.
    """
    if lease.closed is not None:
        return lease.closed.began
    if not lease.pod or lease.pod_key not in world.began_at:
        return None
    began = world.began_at[lease.pod_key]
    if began is None:
        return FOREVER
    return began if began > lease.start else None


def saved_until(world: World, lease: Lease, why: Closed, end: Instant) -> Instant | None:
    """Return up to which instant work is saved if the lease ends with `why` at `end`.

    The run's checkpoint interval decides that. None if no work is lost, or none was saved.
    """
    run = world.runs.get(lease.uid)
    if run is None or run.spec.checkpoint is None or why not in _LOSSES or not lease.pod:
        return None
    saved = end - run.spec.checkpoint
    return saved if saved > max(lease.start, starting_until(world, lease) or 0) else None
