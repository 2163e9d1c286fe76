"""Delays preemption and growth until a turn opens and closes no leases, but at most for a second.

So all events of one instant are applied before anything is preempted (Q2). On a busy fleet leases
begin and end all the time, hence the limit.
"""

from leasehold.control.turn import Turn
from leasehold.core.units import SECOND

_SETTLES = SECOND  # the longest delay


def must_wait(turn: Turn) -> bool:
    """Return whether it is too early to preempt or to grow; if so, request another turn."""
    is_new = turn.world.memory.moving_for(turn.now) < _SETTLES
    waits = is_new and is_in_motion(turn)
    turn.again = turn.again or waits
    return waits


def is_in_motion(turn: Turn) -> bool:
    """Return whether anything started or ended in this turn."""
    return bool(turn.opened or turn.released)
