"""Problems of a store's file: messages, and the meaning of SQLite's errors for callers.

Raised by this package only. `BadStore` means that the file cannot be opened at start. Later,
problems of the file are errors of the store port, with a message:

    SQLite's error             at a read, a write         at the commit
    FULL, READONLY, BUSY ...   Unavailable                Unavailable: rolled back
    IOERR                      Unavailable                OutcomeUnknown: may be on disk
    CORRUPT, NOTADB            Unavailable                Unavailable

After damage, or an I/O error at a commit, nothing more is written: what the operating system has
written to the file is then unknown. Opening the file again shows it.
"""

from pathlib import Path

import apsw

from leasehold.adapters.unusable import Unusable
from leasehold.ports.store import OutcomeUnknown, Unavailable

_RESTORE = "stop, and restore the newest backup (leasehold restore)"
_SENTENCES: tuple[tuple[type[apsw.Error], str], ...] = (
    (apsw.FullError, "the disk is full; free some space, and the next write will succeed"),
    (
        apsw.ReadOnlyError,
        "cannot be written; check the permissions of the file, its folder and its mount",
    ),
    (apsw.BusyError, "another program uses the file; stop that program"),
    (apsw.LockedError, "another program uses the file; stop that program"),
    (apsw.CorruptError, f"is damaged; {_RESTORE}"),
    (apsw.NotADBError, f"is no longer a SQLite file; {_RESTORE}"),
    (apsw.IOError, "the disk failed; check the system log, then start again"),
    (apsw.CantOpenError, "cannot be opened; check that its folder exists and its permissions"),
)
FATAL = (apsw.CorruptError, apsw.NotADBError)


def remedy_of_damage(path: Path) -> str:
    """Return what an administrator should do about a store whose file is damaged."""
    return (
        "keep the folder as it is, and restore the newest backup into another one: "
        f"`leasehold restore FROM.tar --data {path.parent}.restored`"
    )


class BadStore(Unusable):
    """The file cannot be opened as a store; `why` is the problem and `remedy` what to do."""

    def __init__(self, path: Path, why: str, remedy: str) -> None:
        super().__init__(path, " ".join(why.split()), remedy)  # SQLite's messages have line breaks


class FileUnavailable(Unavailable):
    """`Unavailable` with a reason."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__()
        self.path = path
        self.why = why

    def __str__(self) -> str:
        return f"Unavailable: {self.path}: {self.why}"


class FileClosed(FileUnavailable):
    """The store was closed by this process."""


class FileBusy(FileUnavailable):
    """Another process is writing right now."""


class CommitUnknown(OutcomeUnknown):
    """`OutcomeUnknown` with a reason: only the next start shows whether the write is in the
    file."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__()
        self.path = path
        self.why = why

    def __str__(self) -> str:
        return f"OutcomeUnknown: {self.path}: {self.why}"


def sentence(error: apsw.Error) -> str:
    for kind, text in _SENTENCES:
        if isinstance(error, kind):
            return text
    return f"SQLite says {type(error).__name__}: {error}"
