"""Whether all is still: an instant is one, and all that happens at it has happened before a cut.

What ends then is gone, and what starts then is there. On a busy fleet nothing is ever still, and
whoever waits for that does not wait for long.
"""

from leasehold.control.turn import Turn
from leasehold.core.units import SECOND

_SETTLES = SECOND  # how long anybody waits for a turn in which all is still


def must_wait(turn: Turn) -> bool:
    """Whether what would cut others, or pass them by, waits for another turn, which then comes."""
    is_new = turn.world.memory.moving_for(turn.now) < _SETTLES
    waits = is_new and is_in_motion(turn)
    turn.again = turn.again or waits
    return waits


def is_in_motion(turn: Turn) -> bool:
    """Something started or ended in this very turn."""
    return bool(turn.opened or turn.released)
