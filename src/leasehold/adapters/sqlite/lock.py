"""A lock file beside a store, which contains the pid of its first opener.

Used by `store`. The lock admits one process at a time, or several processes that share it. The
kernel drops the lock when its holder ends for whatever reason, so a lock file that was left over
does not matter. The file is never removed: if one process removed it while another was about to
lock it, each of two processes could lock a file of that name.
"""

import os
from pathlib import Path
from typing import NoReturn

from leasehold.adapters.exclusive import share, take
from leasehold.adapters.sqlite.errors import BadStore

OPENING_TRIES = 500  # ten seconds, because the first sharer checks the whole file


class FileLock:
    """An exclusive lock, held from its creation until `release`. The lock belongs to the open file
    and not to the process, so even a second store in the same process is refused."""

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
        raise BadStore(store, why, "stop that process, or name another file")

    def _sign(self) -> None:
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, f"{os.getpid()}\n".encode("ascii"), 0)

    def release(self) -> None:
        """Release the lock. Releasing twice is harmless."""
        if not self._held:
            return
        self._held = False
        os.ftruncate(self._file, 0)
        os.close(self._file)


class SharedLock(FileLock):
    """A shared lock. The first process holds it exclusively until `let_others_in`, so that only
    that process checks and migrates the file."""

    def __init__(self, store: Path) -> None:
        self._store = store
        self._open(store)
        self.is_first = take(self._file, tries=1)
        if self.is_first:
            self._sign()
        elif not share(self._file, tries=OPENING_TRIES):
            self._refuse(store)

    def let_others_in(self) -> None:
        """Turn our exclusive lock into a shared one. Another process that tries to be the first may
        hold the lock for a moment, so this is retried."""
        if not share(self._file, tries=OPENING_TRIES):
            self._refuse(self._store)

    def release(self) -> None:
        """Release our share of the lock. Other processes keep theirs; the pid of the first one
        stays in the file."""
        if self._held:
            self._held = False
            os.close(self._file)
