"""Objects, changes and versions in a SQLite file; a write stores all three in one transaction.

`FileObjects` reads, `FileStorage` writes; `store` creates them. All SQL is here and in `schema`.
Nothing here checks objects or rights.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import apsw

from leasehold.adapters.objects.storage import Change, Key, NamedBody, NamespacedName, PastChange
from leasehold.adapters.sqlite.errors import (
    FATAL,
    CommitUnknown,
    FileBusy,
    FileClosed,
    FileUnavailable,
    sentence,
)
from leasehold.ports.store import WatchExpired

T = TypeVar("T")

_READ = "SELECT body FROM objects WHERE kind = ? AND namespace = ? AND name = ?"
_READ_ALL = "SELECT body FROM objects WHERE kind = ? ORDER BY namespace, name"
_READ_SOME = "SELECT body FROM objects WHERE kind = ? AND namespace = ? ORDER BY name"
_READ_PAGE = (
    "SELECT namespace, name, body FROM objects WHERE kind = ? AND (namespace, name) > (?, ?)"
    " ORDER BY namespace, name LIMIT ?"
)
_READ_PAGE_OF = (
    "SELECT namespace, name, body FROM objects WHERE kind = ? AND namespace = ? AND name > ?"
    " ORDER BY name LIMIT ?"
)
_META = "SELECT value FROM meta WHERE key = ?"
_NEXT = (
    "SELECT version, event, body FROM history WHERE kind = ? AND version > ?"
    " ORDER BY version LIMIT ?"
)
_PUT = (
    "INSERT INTO objects VALUES (?, ?, ?, ?, ?) ON CONFLICT(kind, namespace, name)"
    " DO UPDATE SET version = excluded.version, body = excluded.body"
)
_DELETE = "DELETE FROM objects WHERE kind = ? AND namespace = ? AND name = ?"
_REMEMBER = "INSERT INTO history VALUES (?, ?, ?, ?)"
_ADVANCE = "UPDATE meta SET value = ? WHERE key = 'version' AND value = ?"
_COUNT_CREATED = "UPDATE meta SET value = ? WHERE key = 'created'"
_OLDEST_KEPT = "SELECT version FROM history WHERE kind = ? ORDER BY version DESC LIMIT 1 OFFSET ?"
_FORGET = "DELETE FROM history WHERE kind = ? AND version <= ?"
_FORGOTTEN = "INSERT INTO meta VALUES (?, ?) ON CONFLICT(key) DO UPDATE SET value = excluded.value"


LATEST_MAX = 1024  # objects cached by the writer


class FileObjects:
    """Reads committed data, on a connection of its own or, between writes, on the connection of the
    storage."""

    def __init__(self, connection: apsw.Connection, path: Path) -> None:
        self._connection = connection
        self.path = path

    @property
    def version(self) -> int:
        with self._speaking():
            return self._number("version")

    def read(self, key: Key) -> bytes | None:
        with self._speaking():
            body: bytes | None = self._connection.execute(_READ, key).get
            return body

    def read_all(self, kind: str, namespace: str | None = None) -> tuple[list[bytes], int]:
        asked = (_READ_ALL, (kind,)) if namespace is None else (_READ_SOME, (kind, namespace))
        with self._speaking(), self._connection:  # one snapshot for both
            version = self._number("version")
            stored = [body for (body,) in self._connection.execute(*asked)]
        return stored, version

    def read_page(
        self, kind: str, namespace: str | None, *, after: NamespacedName, count: int
    ) -> tuple[list[NamedBody], int]:
        if namespace is None:
            asked = (_READ_PAGE, (kind, *after, count))
        else:
            asked = (_READ_PAGE_OF, (kind, namespace, after[1], count))
        with self._speaking(), self._connection:
            version = self._number("version")
            found = [
                ((space, name), body) for space, name, body in self._connection.execute(*asked)
            ]
        return found, version

    def scan(self, kind: str, see: Callable[[bytes], None]) -> int:
        with self._speaking(), self._connection:
            version = self._number("version")
            for (body,) in self._connection.execute(_READ_ALL, (kind,)):
                see(body)
        return version

    def next_changes(self, kind: str, after: int, *, count: int) -> list[PastChange]:
        try:
            with self._speaking(), self._connection:
                if after < self._number(f"forgotten/{kind}"):
                    raise WatchExpired
                found = list(self._connection.execute(_NEXT, (kind, after, count)))
        except FileClosed as error:  # followers list again after the next opening
            raise WatchExpired from error
        return [PastChange(*each) for each in found]

    @property
    def prefix(self) -> str:
        with self._speaking():
            return str(self._connection.execute(_META, ("prefix",)).get)

    def _number(self, key: str) -> int:
        number = self._connection.execute(_META, (key,)).get
        return 0 if number is None else int(number)

    @contextmanager
    def _speaking(self) -> Iterator[None]:
        try:
            yield
        except apsw.ConnectionClosedError as error:
            raise FileClosed(self.path, "is closed") from error
        except apsw.Error as error:
            raise self._trouble(error) from error

    def _trouble(self, error: apsw.Error) -> FileUnavailable:
        kind = FileBusy if isinstance(error, apsw.BusyError) else FileUnavailable
        return kind(self.path, sentence(error))


class FileStorage(FileObjects):
    """Writes to the file; a process has only one. After each commit, the counters in memory equal
    those in the file. If `is_shared` is True, other processes write too, and their changes are read
    before each write."""

    def __init__(
        self,
        connection: apsw.Connection,
        path: Path,
        *,
        tell: Callable[[Sequence[Change]], None],
        history_max: int,
        is_shared: bool = False,
    ) -> None:
        super().__init__(connection, path)
        self._is_shared = is_shared
        self._tell = tell
        self._history_max = history_max
        self._changes: list[Change] = []  # of the open transaction
        self._broken: FileUnavailable | None = None
        self._refused = ""  # why the last write failed
        self._version = self._created = self._committed = 0
        self._lengths: dict[str, int] = {}  # number of history rows by kind
        self._latest: dict[Key, bytes] = {}  # last written bodies, which are likely to be read next
        self._load()

    @property
    def version(self) -> int:
        return self._version

    @property
    def created(self) -> int:
        return self._created

    @property
    def trouble(self) -> str:
        """Why nothing can be written, now or until a restart; "" if writing works."""
        return self._refused if self._broken is None else self._broken.why

    def read(self, key: Key) -> bytes | None:
        """Return a body, from the cache if possible. An object that is about to be written was
        often written just before: a pod is created, then claimed, then running."""
        known = self._latest.get(key)
        return super().read(key) if known is None else known

    def put(self, change: Change) -> None:
        """Write the change in a transaction of its own, or as part of the `transact` that is
        running."""
        if self._connection.in_transaction:
            self._put(change)
        else:
            self.transact(lambda: self._put(change))

    def transact(self, work: Callable[[], T]) -> T:
        """Run `work`, then commit everything that it put. If `work` or the commit fails, nothing is
        stored."""
        result = self.prepare(work)
        self.conclude(self.sync())
        self.tell()
        return result

    def prepare(self, work: Callable[[], T]) -> T:
        """Step 1 of `transact`: run `work` in a transaction and leave it open, unless it raises."""
        if self._broken is not None:
            raise self._broken
        with self._speaking():
            self._connection.execute("BEGIN IMMEDIATE")
        try:
            if self._is_shared:
                self._catch_up()
            self._committed = self._version
            result = work()
            self._count()
        except BaseException as error:
            self._undo()
            if isinstance(error, apsw.Error):
                raise self._trouble(error) from error
            raise
        return result

    def sync(self) -> apsw.Error | None:
        """Step 2 of `transact`: commit, which waits for the disk and may run on another thread. The
        caller must pass the result to `conclude`, and must not use the storage before that."""
        try:
            self._connection.execute("COMMIT")
        except apsw.Error as error:
            return error
        return None

    def conclude(self, error: apsw.Error | None) -> None:
        """Step 3 of `transact`: if `error` is None the transaction is committed; otherwise roll
        back and raise the store error for it."""
        if error is not None:
            self._undo()
            if isinstance(error, apsw.IOError):
                # The log may contain the commit, although the sync failed.
                self._break(sentence(error))
                raise CommitUnknown(self.path, sentence(error)) from error
            raise self._trouble(error) from error
        if self._changes:  # a transaction without changes succeeds even on a full disk
            self._refused = ""

    def tell(self) -> None:
        """Step 4 of `transact`, after `conclude`: wake the watches that wait for the changes of
        this transaction."""
        changes, self._changes = self._changes, []
        self._tell(changes)

    def _catch_up(self) -> None:
        """Read the counters that other processes have written. The transaction is open, so no other
        process writes before our commit."""
        version = self._number("version")
        if version != self._version:
            self._latest.clear()
            self._version, self._created = version, self._number("created")

    def _put(self, change: Change) -> None:
        assert change.version == self._version + 1, change.version
        execute, kind = self._connection.execute, change.key[0]
        self._latest.pop(change.key, None)
        if change.event == "DELETED":
            execute(_DELETE, change.key)
        else:
            execute(_PUT, (*change.key, change.version, change.body))
            self._latest[change.key] = change.body
            if len(self._latest) > LATEST_MAX:
                del self._latest[next(iter(self._latest))]
        execute(_REMEMBER, (change.version, kind, change.event, change.body))
        self._created += change.event == "ADDED"
        self._version = change.version
        self._lengths[kind] = self._lengths.get(kind, 0) + 1
        if self._lengths[kind] >= 2 * self._history_max:
            self._compact(kind)
        self._changes.append(change)

    def _compact(self, kind: str) -> None:
        """Delete the oldest changes of a kind from the history. This is done only when the history
        has twice its length, so that most writes delete nothing."""
        forgotten = self._connection.execute(_OLDEST_KEPT, (kind, self._history_max)).get
        if forgotten is None:  # another process has trimmed it
            self._lengths[kind] = 0
            return
        self._connection.execute(_FORGET, (kind, forgotten))
        self._connection.execute(_FORGOTTEN, (f"forgotten/{kind}", forgotten))
        self._lengths[kind] = self._history_max

    def _count(self) -> None:
        """Write the counters to the file, once per transaction."""
        if self._version == self._committed:
            return
        self._connection.execute(_ADVANCE, (self._version, self._committed))
        if self._connection.changes() != 1:
            raise self._break(
                "another process wrote to the file; make sure that no other process uses it, "
                "then start again"
            )
        self._connection.execute(_COUNT_CREATED, (self._created,))

    def _undo(self) -> None:
        """Roll back, and read the counters from the file again. After some errors SQLite has
        already rolled back by itself."""
        self._changes = []
        self._latest.clear()
        try:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            self._load()
        except (apsw.Error, FileUnavailable) as error:
            why = sentence(error) if isinstance(error, apsw.Error) else error.why
            self._break(why)

    def _load(self) -> None:
        with self._speaking():
            self._version = self._number("version")
            self._created = self._number("created")
            counted = self._connection.execute(
                "SELECT kind, count(*) FROM history GROUP BY kind ORDER BY kind"
            )
            self._lengths = dict(counted)

    def _trouble(self, error: apsw.Error) -> FileUnavailable:
        trouble = super()._trouble(error)
        self._refused = trouble.why
        return self._break(trouble.why) if isinstance(error, FATAL) else trouble

    def _break(self, why: str) -> FileUnavailable:
        self._broken = FileUnavailable(self.path, why)
        return self._broken
