"""A lock on an open file that its process alone is to have.

Used for the store's file and for the agent's folder. The kernel drops such a lock with the last
process that has the file open. That may be a child which the holder had begun to make when it was
killed, and which closes the file a moment later: so a lock that is taken is asked for again.
"""

import fcntl
import time

TRIES = 25
PAUSE_S = 0.02


def take(file: int) -> bool:
    """False when somebody has it, and goes on having it."""
    for left in reversed(range(TRIES)):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if left:
                time.sleep(PAUSE_S)
        else:
            return True
    return False
