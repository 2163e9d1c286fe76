"""What can be wrong with a store's file, in sentences, and what SQLite's errors mean for a caller.

Raised by this package only. `BadStore` is for whoever starts the program: the file cannot be used
as it is. After that the file's troubles are the port's errors, with a sentence.

    SQLite's error             at a read, a write         at the commit
    FULL, READONLY, BUSY ...   Unavailable                Unavailable: it was rolled back
    IOERR                      Unavailable                OutcomeUnknown: it may be on the disk
    CORRUPT, NOTADB            Unavailable                Unavailable

After an I/O error at a commit, or damage, nothing more is written: what the operating system holds
of the file is then not known, and opening it again is what finds out.
"""

from pathlib import Path

import apsw

from leasehold.adapters.unusable import Unusable
from leasehold.ports.store import OutcomeUnknown, Unavailable

_RESTORE = "stop, and restore the newest backup (leasehold restore)"
_SENTENCES: tuple[tuple[type[apsw.Error], str], ...] = (
    (apsw.FullError, "the disk is full; make room, and the next write will pass"),
    (apsw.ReadOnlyError, "cannot be written; check the rights of the file, its folder and mount"),
    (apsw.BusyError, "another program holds the file; end it"),
    (apsw.LockedError, "another program holds the file; end it"),
    (apsw.CorruptError, f"is damaged; {_RESTORE}"),
    (apsw.NotADBError, f"is no SQLite file any more; {_RESTORE}"),
    (apsw.IOError, "the disk failed; look at the system's log, then start again"),
    (apsw.CantOpenError, "cannot be opened; check that its folder exists, and its rights"),
)
FATAL = (apsw.CorruptError, apsw.NotADBError)


def remedy_of_damage(path: Path) -> str:
    """Return what to do about a store that cannot be used any more."""
    return (
        "keep the folder as it is, and restore the newest backup into another one: "
        f"`leasehold restore FROM.tar --data {path.parent}.restored`"
    )


class BadStore(Unusable):
    """The file cannot be opened as a store; `why` says what is wrong and `remedy` what to do."""

    def __init__(self, path: Path, why: str, remedy: str) -> None:
        super().__init__(path, " ".join(why.split()), remedy)  # SQLite's own words have line breaks


class FileUnavailable(Unavailable):
    """`Unavailable`, and why."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__()
        self.path = path
        self.why = why

    def __str__(self) -> str:
        return f"Unavailable: {self.path}: {self.why}"


class FileClosed(FileUnavailable):
    """By us, on purpose."""


class FileBusy(FileUnavailable):
    """Somebody else is writing right now."""


class CommitUnknown(OutcomeUnknown):
    """`OutcomeUnknown`, and why: the write may be found after the next start, or not."""

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
