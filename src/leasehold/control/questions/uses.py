"""What GPU-time was used for: work, idle spares, starting pods, or work lost to a failure or
preemption.

Used by `report`. For an ended lease the use follows from the lease alone, so it is the same for
live and archived leases. Work saved before a failure counts as work: a run that declares its
checkpoint interval has lost at most that much, any other run everything.
"""

from enum import StrEnum
from typing import assert_never

from leasehold.control.running.open_leases import pod_of
from leasehold.core.facts import Cause, Closed, Closure, Lease, Role
from leasehold.core.units import Instant
from leasehold.core.world.use_of_time import starting_until
from leasehold.core.world.world import World


class Use(StrEnum):
    WORK = "work"
    SPARE = "spare"
    STARTING = "starting"
    FAILED = "failed"
    CUT = "cut"


def starts_until(world: World, lease: Lease) -> Instant:
    """Return the instant up to which the lease's time was used to start its pod."""
    until = starting_until(world, lease)
    return lease.start if until is None else until


def saved_until(lease: Lease) -> Instant:
    """Return the instant up to which the lease's work is saved in a checkpoint, even if the rest
    was lost.

    Without such a checkpoint, return the lease's start.
    """
    saved = None if lease.closed is None else lease.closed.saved
    return lease.start if saved is None else saved


def use_of(world: World, lease: Lease) -> Use:
    """Return what the lease's time was used for, apart from starting its pod and from saved work.

    That depends on how the lease ended: after a failure, for example, the time is `failed`.
    """
    if lease.role is Role.SPARE:
        return Use.SPARE
    if lease.closed is not None:
        return _ended(lease.closed)
    pod = pod_of(world, lease)
    return Use.WORK if pod is not None and pod.is_bound else Use.STARTING


def _ended(closed: Closure) -> Use:
    match closed.why.reason:
        case Closed.FAIL:
            never_ran = closed.cause in (Cause.UNSTARTED, Cause.REJECTED, Cause.REFUSED)
            return Use.STARTING if never_ran else Use.FAILED
        case Closed.NODE_FAILURE:
            return Use.FAILED
        case Closed.RANDOM_PREEMPT | Closed.RECLAIMED:
            return Use.CUT
        case (
            Closed.COMPLETED
            | Closed.SWAP
            | Closed.SHRINK
            | Closed.DROP_SPARE
            | Closed.REFINANCED
            | Closed.TIME_LIMIT
            | Closed.CANCELED
        ):
            return Use.WORK
        case _:
            assert_never(closed.why.reason)
