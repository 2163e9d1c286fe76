"""One process at a time: a lock file beside the store that names its holder.

Used by `store`. The kernel drops the lock with the process that held it, however that ended, so a
file left behind by a dead one is simply taken over. The file itself is never removed: between a
removal and a lock two processes could each hold a file of that name.
"""

import os
from pathlib import Path

from leasehold.adapters.exclusive import take
from leasehold.adapters.sqlite.errors import BadStore


def used_by(file: int) -> str:
    """Of a lock file that somebody else holds: who."""
    holder = os.read(file, 32).decode("ascii", "replace").strip() or "unknown"
    return f"is in use by the process with pid {holder}"


class FileLock:
    """Held from its making until `release`. It is of the open file, not of the process: even a
    second store of the same process is refused."""

    def __init__(self, store: Path) -> None:
        path = store.with_name(store.name + ".lock")
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            remedy = "check that its folder exists and may be written"
            raise BadStore(path, f"cannot be opened: {error.strerror}", remedy) from error
        if not take(self._file):
            why = used_by(self._file)
            os.close(self._file)
            raise BadStore(store, why, "end that one, or name another file")
        self._held = True
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, f"{os.getpid()}\n".encode("ascii"), 0)

    def release(self) -> None:
        """Releasing twice is harmless."""
        if not self._held:
            return
        self._held = False
        os.ftruncate(self._file, 0)
        os.close(self._file)
