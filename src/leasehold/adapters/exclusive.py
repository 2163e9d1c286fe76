"""An exclusive or shared lock on an open file.

Used for the store's file and the agent's folder. The kernel drops such a lock when the last process
closes the file. When a holder is killed while it starts a child process, the child may have the
file open for a moment longer. Therefore a lock that is taken is tried again for a while.
"""

import fcntl
import time

TRIES = 25
PAUSE_S = 0.02


def take(file: int, *, tries: int = TRIES) -> bool:
    """Lock the file exclusively; return False if another process still holds a lock after all
    tries."""
    return _locked(file, fcntl.LOCK_EX, tries)


def share(file: int, *, tries: int = TRIES) -> bool:
    """Take a shared lock, or turn our exclusive lock into a shared one. Return False if another
    process still holds the file exclusively after all tries."""
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
