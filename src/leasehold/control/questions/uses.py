"""What GPU-time was for: work, a spare that stood by, a pod that did not run yet, or what a failure
or a cut ended.

Used by `report`. Of leases that have ended it is told by them alone, and so the same from live and
archived ones. What a run had saved before it failed or was cut is work: a run that declares how
often it checkpoints has lost that much at most, any other all of it.
"""

from enum import StrEnum
from typing import assert_never

from leasehold.control.running.open_leases import pod_of
from leasehold.core.facts import Cause, Closed, Closure, Lease, Role
from leasehold.core.units import Instant
from leasehold.core.world.course import starting_until
from leasehold.core.world.world import World


class Use(StrEnum):
    WORK = "work"
    SPARE = "spare"
    STARTING = "starting"
    FAILED = "failed"
    CUT = "cut"


def starts_until(world: World, lease: Lease) -> Instant:
    """Up to this instant the lease's time was for starting its pod."""
    until = starting_until(world, lease)
    return lease.start if until is None else until


def saved_until(lease: Lease) -> Instant:
    """Up to this instant what it did was not lost, however it ended."""
    saved = None if lease.closed is None else lease.closed.saved
    return lease.start if saved is None else saved


def use_of(world: World, lease: Lease) -> Use:
    """Of the time after that: how the lease ended says what it was for."""
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
