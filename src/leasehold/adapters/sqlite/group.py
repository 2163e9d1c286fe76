"""The SQLite store for asyncio: commits all queued writes together.

A disk confirms a few thousand commits per second, however large each commit is. So the writes of
several callers share one. Reads use a separate connection and see committed data only.
"""

import asyncio
import queue
import sys
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar, cast

import apsw

from leasehold.adapters.disk_pace import DiskPace
from leasehold.adapters.objects.history import History
from leasehold.adapters.objects.storage import Change, PastChange
from leasehold.adapters.objects.store import ChangeWaiters
from leasehold.adapters.sqlite.errors import BadStore, FileClosed, FileUnavailable, sentence
from leasehold.adapters.sqlite.schema import open_reader
from leasehold.adapters.sqlite.storage import FileObjects, FileStorage
from leasehold.adapters.sqlite.store import SqliteStore
from leasehold.ports.store import StoreError, WatchExpired

T = TypeVar("T")

RECENT_MAX = 256  # changes of each kind kept in memory for watches
GROUP_MAX = 64  # writes per transaction; the first one, and the loop, wait for the last


class GroupStore(SqliteStore):
    """A `SqliteStore` for a running asyncio loop, on which it must be created, used and closed."""

    async def _perform(self, write: Callable[[], T]) -> T:
        return await self._writer.perform(write)

    def close(self) -> None:
        """Finish all queued writes, then close the store."""
        self._writer.stop()
        self._recent.forget()
        self._reader.close()
        super().close()

    def _open(self, waiters: ChangeWaiters) -> FileStorage:
        loop = asyncio.get_running_loop()

        def tell(changes: Sequence[Change]) -> None:
            self._recent.add_all(changes)
            waiters.wake_for(changes)

        storage = self._open_storage(tell)
        self._recent = Recent(storage.version, size_max=min(RECENT_MAX, self._history_max))
        try:
            self._reader = open_reader(self.path)
        except apsw.Error as error:
            self._let_go()
            raise BadStore(self.path, f"cannot be read ({error})", sentence(error)) from error
        self._writer = Writer(storage, loop)
        return storage

    def _objects_over(self, storage: FileStorage) -> FileObjects:
        return RecentObjects(self._reader, storage.path, self._recent)


class Recent:
    """The latest changes of each kind since the file was opened, in memory."""

    def __init__(self, version: int, *, size_max: int) -> None:
        self._from = version
        self._size_max = size_max
        self._histories: dict[str, History] = {}

    def add_all(self, changes: Sequence[Change]) -> None:
        for change in changes:
            kind = change.key[0]
            if kind not in self._histories:
                self._histories[kind] = History(self._size_max, after=self._from)
            self._histories[kind].add(PastChange(change.version, change.event, change.body))

    def forget(self) -> None:
        """Answer no further question from memory: `next_changes` raises `WatchExpired` from now on,
        and its caller reads the file instead."""
        self._from = sys.maxsize

    def next_changes(self, kind: str, after: int, count: int) -> list[PastChange]:
        """Return at most `count` changes that follow version `after`. Raise `WatchExpired` if
        memory does not have all of them, so that the file must be read."""
        if after < self._from:
            raise WatchExpired
        history = self._histories.get(kind)
        return [] if history is None else history.next_changes(after, count)


class RecentObjects(FileObjects):
    """Reads objects from the file, and the latest changes from memory."""

    def __init__(self, connection: apsw.Connection, path: Path, recent: Recent) -> None:
        super().__init__(connection, path)
        self._recent = recent

    def next_changes(self, kind: str, after: int, *, count: int) -> list[PastChange]:
        try:
            return self._recent.next_changes(kind, after, count)
        except WatchExpired:
            return super().next_changes(kind, after, count=count)


class Writer:
    """The queue of waiting writes, the group of writes being committed, and a thread for slow
    commits.

    Statements run on the event loop's thread. On another thread, each statement would wait for the
    interpreter lock, which a busy loop holds. The commit runs on the loop's thread too while the
    disk is faster than a hand-over between threads. Otherwise it runs on the thread of the Writer,
    so that a slow disk blocks nothing else.
    """

    def __init__(self, storage: FileStorage, loop: asyncio.AbstractEventLoop) -> None:
        self._storage = storage
        self._loop = loop
        self._waiting: deque[_Job] = deque()
        self._written: list[_Job] | None = None  # the group being committed
        self._is_called = False
        self._is_open = True
        self._orders: queue.SimpleQueue[bool] = queue.SimpleQueue()  # False: end of the thread
        self._outcome: apsw.Error | None = None  # of the last commit
        self._disk = DiskPace(is_quick=False)
        self._thread = threading.Thread(target=self._serve, name="store-writer", daemon=True)
        self._thread.start()

    async def perform(self, write: Callable[[], T]) -> T:
        """Queue `write`, and return its result after the group that contains it was committed."""
        if not self._is_open:
            raise FileClosed(self._storage.path, "is closed")
        job = _Job(write, self._loop)
        self._waiting.append(job)
        if self._written is None and not self._is_called:
            self._is_called = True
            self._loop.call_soon(self._begin)  # not at once, so that others can join the group
        return cast(T, await job.answer)

    def stop(self) -> None:
        """Perform all queued writes, which blocks the caller, and stop the thread."""
        if not self._is_open:
            return
        self._is_open = False
        self._orders.put(False)
        self._thread.join()
        self._conclude()
        while self._waiting:
            if self._is_written():
                self._sync()
                self._conclude()

    def _serve(self) -> None:
        while self._orders.get():
            self._sync()
            _tell(self._loop, self._on_commit)

    def _begin(self) -> None:
        self._is_called = False
        while self._is_open and self._waiting:
            if not self._is_written():
                continue
            if not self._disk.is_quick:
                self._orders.put(True)
                return
            self._sync()
            self._conclude()

    def _sync(self) -> None:
        self._outcome = self._disk.timed(self._storage.sync)

    def _on_commit(self) -> None:
        if self._is_open:  # otherwise `stop` has handled it
            self._conclude()
            self._begin()

    def _is_written(self) -> bool:
        """Take a group of writes from the queue and run them in one transaction, which succeeds or
        fails as a whole. Return True if the transaction is ready to be committed."""
        jobs = [self._waiting.popleft() for _ in range(min(len(self._waiting), GROUP_MAX))]
        tried: list[_Job] = []

        def attempt_all() -> None:
            for job in jobs:
                tried.append(job)
                job.attempt()

        try:
            self._storage.prepare(attempt_all)
        except StoreError as error:
            _tell_all(jobs, error)
            return False
        except Exception as error:
            # A defect of leasehold: fail this write and retry the others without it.
            defective = tried[-1]
            _tell_all([defective], error)
            self._waiting.extendleft(job for job in reversed(jobs) if job is not defective)
            return False
        self._written = jobs
        return True

    def _conclude(self) -> None:
        jobs, self._written = self._written, None
        if jobs is None:
            return
        failure: Exception | None = None
        try:
            self._storage.conclude(self._outcome)
        except Exception as error:
            failure = error
        _tell_all(jobs, failure)
        self._storage.tell()  # after the writers, to whom it is no news


class _Job:
    def __init__(self, write: Callable[[], object], loop: asyncio.AbstractEventLoop) -> None:
        self._write = write
        self._result: object = None
        self.error: Exception | None = None
        self.answer: asyncio.Future[object] = loop.create_future()

    def attempt(self) -> None:
        """Run the write. A store error is the answer of this write alone; an error of the file
        fails the whole group."""
        self.error = None
        try:
            self._result = self._write()
        except (FileUnavailable, apsw.Error):
            raise
        except StoreError as error:
            self.error = error

    def tell(self) -> None:
        if self.answer.done():
            return  # its caller was cancelled
        if self.error is not None:
            self.answer.set_exception(self.error)
        else:
            self.answer.set_result(self._result)


def _tell_all(jobs: "list[_Job]", failure: Exception | None) -> None:
    for job in jobs:
        job.error = failure or job.error
        job.tell()


def _tell(loop: asyncio.AbstractEventLoop, news: Callable[[], object]) -> None:
    """Schedule `news` on the loop's thread; do nothing if the loop is closed."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(news)
