"""The store in a file for asyncio: whatever has queued is committed at once.

The disk confirms a few thousand commits a second, however much is in each; so callers wait together
for one. Reads go to a connection of their own and see what is committed.
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

RECENT_MAX = 256  # changes of a kind that are kept in memory for watches
GROUP_MAX = 64  # writes in one transaction: the first of them, and the loop, wait for the last


class GroupStore(SqliteStore):
    """Made, used and closed on a running asyncio loop; otherwise like `SqliteStore`."""

    async def _perform(self, write: Callable[[], T]) -> T:
        return await self._writer.perform(write)

    def close(self) -> None:
        """What was called before is written first."""
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
    """The last changes of each kind since the file was opened."""

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
        """Only the file knows."""
        self._from = sys.maxsize

    def next_changes(self, kind: str, after: int, count: int) -> list[PastChange]:
        """Raises `WatchExpired` for what only the file knows."""
        if after < self._from:
            raise WatchExpired
        history = self._histories.get(kind)
        return [] if history is None else history.next_changes(after, count)


class RecentObjects(FileObjects):
    """The file, and before it what was written to it last."""

    def __init__(self, connection: apsw.Connection, path: Path, recent: Recent) -> None:
        super().__init__(connection, path)
        self._recent = recent

    def next_changes(self, kind: str, after: int, *, count: int) -> list[PastChange]:
        try:
            return self._recent.next_changes(kind, after, count)
        except WatchExpired:
            return super().next_changes(kind, after, count=count)


class Writer:
    """The calls that wait, the group of them that is being written, and a thread for the disk.

    Statements run on the loop's thread: one that needed the interpreter for every statement would
    wait for a busy loop as often. The commit, too, while the disk answers quicker than two threads
    take to hand over; on the thread otherwise, so that nobody else waits for a slow disk."""

    def __init__(self, storage: FileStorage, loop: asyncio.AbstractEventLoop) -> None:
        self._storage = storage
        self._loop = loop
        self._waiting: deque[_Job] = deque()
        self._written: list[_Job] | None = None  # those whose commit is under way
        self._is_called = False
        self._is_open = True
        self._orders: queue.SimpleQueue[bool] = queue.SimpleQueue()  # false: no more
        self._outcome: apsw.Error | None = None  # of the last commit
        self._disk = DiskPace(is_quick=False)
        self._thread = threading.Thread(target=self._serve, name="store-writer", daemon=True)
        self._thread.start()

    async def perform(self, write: Callable[[], T]) -> T:
        """The result of `write` once it is committed, together with whatever else has queued."""
        if not self._is_open:
            raise FileClosed(self._storage.path, "is closed")
        job = _Job(write, self._loop)
        self._waiting.append(job)
        if self._written is None and not self._is_called:
            self._is_called = True
            self._loop.call_soon(self._begin)  # and not at once, so that others can join
        return cast(T, await job.answer)

    def stop(self) -> None:
        """What was called before is written first, while the caller waits."""
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
        if self._is_open:  # else `stop` has seen to it
            self._conclude()
            self._begin()

    def _is_written(self) -> bool:
        """Writes a group; true when it is to be committed. Whoever shares a transaction shares its
        fate: all of them are written, or none."""
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
            # A defect of ours: nobody is left waiting, and the others try again without this one.
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
        self._storage.tell()  # after those who wrote: to them it is no news


class _Job:
    def __init__(self, write: Callable[[], object], loop: asyncio.AbstractEventLoop) -> None:
        self._write = write
        self._result: object = None
        self.error: Exception | None = None
        self.answer: asyncio.Future[object] = loop.create_future()

    def attempt(self) -> None:
        """An answer of the store's is this caller's alone; trouble with the file is everybody's."""
        self.error = None
        try:
            self._result = self._write()
        except (FileUnavailable, apsw.Error):
            raise
        except StoreError as error:
            self.error = error

    def tell(self) -> None:
        if self.answer.done():
            return  # its caller was cancelled meanwhile
        if self.error is not None:
            self.answer.set_exception(self.error)
        else:
            self.answer.set_result(self._result)


def _tell_all(jobs: "list[_Job]", failure: Exception | None) -> None:
    for job in jobs:
        job.error = failure or job.error
        job.tell()


def _tell(loop: asyncio.AbstractEventLoop, news: Callable[[], object]) -> None:
    """Runs `news` on the loop's thread; a loop that is closed has nobody left to tell."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(news)
