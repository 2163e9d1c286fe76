"""Who may have a store open: a lock file beside it, which names who opened it first.

One process at a time, or any number of those that share it and nobody else.

Used by `store`. The kernel drops the lock with the process that held it, however that ended, so a
file left behind by a dead one is simply taken over. The file itself is never removed: between a
removal and a lock two processes could each hold a file of that name.
"""

import os
from pathlib import Path
from typing import NoReturn

from leasehold.adapters.exclusive import share, take
from leasehold.adapters.sqlite.errors import BadStore

OPENING_TRIES = 500  # ten seconds: the first of those who share looks the whole file over


class FileLock:
    """Held from its making until `release`. It is of the open file, not of the process: even a
    second store of the same process is refused."""

    def __init__(self, store: Path) -> None:
        self._open(store)
        if not take(self._file):
            self._refuse(store)
        self._sign()

    def _open(self, store: Path) -> None:
        path = store.with_name(store.name + ".lock")
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            remedy = "check that its folder exists and may be written"
            raise BadStore(path, f"cannot be opened: {error.strerror}", remedy) from error
        self._held = True

    def _refuse(self, store: Path) -> NoReturn:
        holder = os.read(self._file, 32).decode("ascii", "replace").strip() or "unknown"
        os.close(self._file)
        why = f"is in use by the process with pid {holder}"
        raise BadStore(store, why, "end that one, or name another file")

    def _sign(self) -> None:
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, f"{os.getpid()}\n".encode("ascii"), 0)

    def release(self) -> None:
        """Releasing twice is harmless."""
        if not self._held:
            return
        self._held = False
        os.ftruncate(self._file, 0)
        os.close(self._file)


class SharedLock(FileLock):
    """Of one of those who share a store. The first has it alone until `let_others_in`: whatever
    must be done to the file before it is used is done once."""

    def __init__(self, store: Path) -> None:
        self._store = store
        self._open(store)
        self.is_first = take(self._file, tries=1)
        if self.is_first:
            self._sign()
        elif not share(self._file, tries=OPENING_TRIES):
            self._refuse(store)

    def let_others_in(self) -> None:
        """Whoever else wanted to be the first may have it for a moment meanwhile."""
        if not share(self._file, tries=OPENING_TRIES):
            self._refuse(self._store)

    def release(self) -> None:
        """Others go on; who opened it first stays written there."""
        if self._held:
            self._held = False
            os.close(self._file)
