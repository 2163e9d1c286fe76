"""A lock on an open file that its process alone is to have, or that several have together.

Used for the store's file and for the agent's folder. The kernel drops such a lock with the last
process that has the file open. That may be a child which the holder had begun to make when it was
killed, and which closes the file a moment later: so a lock that is taken is asked for again.
"""

import fcntl
import time

TRIES = 25
PAUSE_S = 0.02


def take(file: int, *, tries: int = TRIES) -> bool:
    """False when somebody has it, and goes on having it."""
    return _locked(file, fcntl.LOCK_EX, tries)


def share(file: int, *, tries: int = TRIES) -> bool:
    """With others who share it; also gives up having it alone. False when somebody has it alone,
    and goes on having it."""
    return _locked(file, fcntl.LOCK_SH, tries)


def _locked(file: int, how: int, tries: int) -> bool:
    for left in reversed(range(tries)):
        try:
            fcntl.flock(file, how | fcntl.LOCK_NB)
        except BlockingIOError:
            if left:
                time.sleep(PAUSE_S)
        else:
            return True
    return False
