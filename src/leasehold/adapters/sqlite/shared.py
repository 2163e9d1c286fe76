"""The SQLite store for several processes at once: several control planes on one host.

Implements `ports.store.Store` with the same file format as `store` and `group`. Every write is a
transaction that first reads what other processes have written. So a version that was checked in the
transaction is still the present one at the commit. SQLite allows one writer at a time: other
writers retry, and get `Unavailable` if that takes too long. Changes by other processes are noticed
by polling the file.

A process that is stopped (SIGSTOP) within a transaction blocks all writers until it continues or is
killed. This cannot be avoided with SQLite; no process can decide anything meanwhile.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TypeVar

import apsw

from leasehold.adapters.objects.storage import Change
from leasehold.adapters.objects.store import ChangeWaiters
from leasehold.adapters.sqlite.errors import BadStore, FileBusy, FileUnavailable, sentence
from leasehold.adapters.sqlite.lock import SharedLock
from leasehold.adapters.sqlite.schema import open_another, open_file, open_reader
from leasehold.adapters.sqlite.storage import FileObjects, FileStorage
from leasehold.adapters.sqlite.store import SqliteStore
from leasehold.core.units import Millis
from leasehold.ports.store import StoreError

T = TypeVar("T")

LOOK_MS: Millis = 20  # polling interval for other processes' writes
BUSY_PAUSE_MS: Millis = 2
BUSY_MS_MAX: Millis = 1_500  # less than a keeper's request timeout


class SharedStore(SqliteStore):
    """A `SqliteStore` whose file several processes use. It must be closed while its tasks still
    run."""

    def close(self) -> None:
        self._looking.cancel()
        self._reader.close()
        super().close()

    async def _perform(self, write: Callable[[], T]) -> T:
        """Run `write`, with everything it reads, in one transaction."""
        refused: list[StoreError] = []

        def attempt() -> T | None:
            try:
                return write()
            except FileUnavailable:
                raise
            except StoreError as error:  # an answer; the transaction stays valid
                refused.append(error)
                return None

        result = await self._in_turn(attempt)
        if refused:
            raise refused[-1]
        return result  # type: ignore[return-value] # it was not refused

    async def _in_turn(self, work: Callable[[], T]) -> T:
        """Run `work` in a transaction. While another process writes, wait without blocking the
        event loop."""
        began = self._clock.monotonic()
        while True:
            try:
                return self._storage.transact(work)
            except FileBusy:
                if self._clock.monotonic() - began >= BUSY_MS_MAX:
                    raise
            await self._clock.sleep(BUSY_PAUSE_MS)

    def _open_storage(self, tell: Callable[[Sequence[Change]], None]) -> FileStorage:
        lock = SharedLock(self.path)
        self._lock = lock
        try:
            opened = open_file if lock.is_first else open_another
            self._connection = opened(self.path, prefix=self._prefix)
            self._connection.set_busy_timeout(0)
            self._storage = FileStorage(
                self._connection,
                self.path,
                tell=tell,
                history_max=self._history_max,
                is_shared=True,
            )
            self._reader = open_reader(self.path)
            lock.let_others_in()
        except apsw.Error as error:
            lock.release()
            raise BadStore(self.path, f"cannot be read ({error})", sentence(error)) from error
        except BaseException:
            lock.release()
            raise
        return self._storage

    def _open(self, waiters: ChangeWaiters) -> FileStorage:
        storage = super()._open(waiters)
        self._looking = self._tasks.spawn("store looks", self._look(waiters))
        return storage

    def _objects_over(self, storage: FileStorage) -> FileObjects:
        return FileObjects(self._reader, storage.path)

    async def _look(self, waiters: ChangeWaiters) -> None:
        """Wake the watches when another process has written; never return."""
        known = None
        while True:
            with suppress(apsw.Error):  # the next reader reports it
                known, before = self._data_version(), known
                if known != before:
                    waiters.wake_all()
            await self._clock.sleep(LOOK_MS)

    def _data_version(self) -> int:
        """Return SQLite's counter, which changes with each commit of another connection."""
        return int(self._reader.pragma("data_version"))
