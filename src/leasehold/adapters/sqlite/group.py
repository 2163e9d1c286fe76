"""The store in a file for asyncio: a thread writes, and commits whatever has queued at once.

The disk confirms a few thousand commits a second, however much is in each; so callers wait together
for one. Reads go to a connection of their own, on the loop's thread, and see what is committed.
Admission is asked on the writer's thread and must not care where it is.
"""

import asyncio
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar, cast

import apsw

from leasehold.adapters.objects.store import Bells
from leasehold.adapters.sqlite.errors import BadStore, FileClosed, FileUnavailable, sentence
from leasehold.adapters.sqlite.schema import open_reader
from leasehold.adapters.sqlite.shelf import FilePages, FileShelf
from leasehold.adapters.sqlite.store import SqliteStore
from leasehold.ports.store import StoreError

T = TypeVar("T")

GROUP_MAX = 512  # writes in one transaction: the first of them waits for the last


class GroupStore(SqliteStore):
    """Made, used and closed on a running asyncio loop; otherwise like `SqliteStore`."""

    async def _perform(self, write: Callable[[], T]) -> T:
        return await self._writer.perform(write)

    def close(self) -> None:
        """What was called before is written first."""
        self._writer.stop()
        self._reader.close()
        super().close()

    def _open(self, bells: Bells) -> FileShelf:
        loop = asyncio.get_running_loop()
        shelf = self._open_shelf(lambda kind: _tell(loop, lambda: bells.ring(kind)))
        try:
            self._reader = open_reader(self.path)
        except apsw.Error as error:
            self._let_go()
            raise BadStore(self.path, f"cannot be read ({error})", sentence(error)) from error
        self._writer = Writer(shelf, loop)
        return shelf

    def _pages_over(self, shelf: FileShelf) -> FilePages:
        return FilePages(self._reader, shelf.path)


class Writer:
    """A thread and the queue before it."""

    def __init__(self, shelf: FileShelf, loop: asyncio.AbstractEventLoop) -> None:
        self._shelf = shelf
        self._loop = loop
        self._queue: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._is_open = True
        self._thread = threading.Thread(target=self._serve, name="store-writer", daemon=True)
        self._thread.start()

    async def perform(self, write: Callable[[], T]) -> T:
        """The result of `write` once it is committed, together with whatever else has queued."""
        if not self._is_open:
            raise FileClosed(self._shelf.path, "is closed")
        job = _Job(write, self._loop)
        self._queue.put(job)
        return cast(T, await job.answer)

    def stop(self) -> None:
        if self._is_open:
            self._is_open = False
            self._queue.put(None)
            self._thread.join()

    def _serve(self) -> None:
        while (jobs := self._next_jobs()) is not None:
            self._commit(jobs)
            for job in jobs:
                _tell(self._loop, job.tell)

    def _next_jobs(self) -> "list[_Job] | None":
        """All that wait, in order, after waiting for one; None when it is time to end."""
        first = self._queue.get()
        if first is None:
            return None
        jobs = [first]
        while len(jobs) < GROUP_MAX:
            try:
                job = self._queue.get_nowait()
            except queue.Empty:
                break
            if job is None:  # the last thing ever queued: it is for the next time
                self._queue.put(None)
                break
            jobs.append(job)
        return jobs

    def _commit(self, jobs: "list[_Job]") -> None:
        """All of them or none: whoever shares a transaction shares its fate."""

        def attempt_all() -> None:
            for job in jobs:
                job.attempt()

        try:
            self._shelf.transact(attempt_all)
        except Exception as error:  # nobody may be left waiting, not even for a defect of ours
            for job in jobs:
                job.error = error


class _Job:
    def __init__(self, write: Callable[[], object], loop: asyncio.AbstractEventLoop) -> None:
        self._write = write
        self._result: object = None
        self.error: Exception | None = None
        self.answer: asyncio.Future[object] = loop.create_future()

    def attempt(self) -> None:
        """An answer of the store's is this caller's alone; trouble with the file is everybody's."""
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


def _tell(loop: asyncio.AbstractEventLoop, news: Callable[[], object]) -> None:
    """Runs `news` on the loop's thread; a loop that is closed has nobody left to tell."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(news)
