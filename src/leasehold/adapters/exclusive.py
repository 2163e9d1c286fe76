"""An exclusive or shared lock on an open file.

Used for the store's file and the agent's folder. The kernel drops such a lock when the last process
closes the file. That may be a child that a killed holder was just creating, and which closes the
file a moment later. Therefore a lock that is taken is retried for a while.
"""

import fcntl
import time

TRIES = 25
PAUSE_S = 0.02


def take(file: int, *, tries: int = TRIES) -> bool:
    """Lock exclusively; return False if the lock is still taken after all tries."""
    return _locked(file, fcntl.LOCK_EX, tries)


def share(file: int, *, tries: int = TRIES) -> bool:
    """Share the lock, also to downgrade an exclusive one. Return False if another process still
    holds it exclusively after all tries."""
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
