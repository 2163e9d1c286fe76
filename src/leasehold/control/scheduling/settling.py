"""Delays preemption until a turn opens and closes nothing, but at most for a second.

So all events of one instant are applied before anything is preempted (Q2). A busy fleet never comes
to rest, hence the limit.
"""

from leasehold.control.turn import Turn
from leasehold.core.units import SECOND

_SETTLES = SECOND  # the longest delay


def must_wait(turn: Turn) -> bool:
    """Return whether the caller must not preempt or grow yet; if so, request another turn."""
    is_new = turn.world.memory.moving_for(turn.now) < _SETTLES
    waits = is_new and is_in_motion(turn)
    turn.again = turn.again or waits
    return waits


def is_in_motion(turn: Turn) -> bool:
    """Return whether anything started or ended in this turn."""
    return bool(turn.opened or turn.released)
