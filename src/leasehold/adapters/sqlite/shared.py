"""The store in a file that several processes have open at once: several control planes on one host.

Implements `ports.store.Store` as `store` and `group` do, on a file of the same format. Every write
is a transaction that begins by reading what the others have written, so that a condition on a
version is true when it is committed, whoever else writes. SQLite lets one write at a time: whoever
comes meanwhile asks again, and is told `Unavailable` when that takes too long. Of changes that
others make it hears by looking whether the file has changed.

A process that is stopped (SIGSTOP) in the middle of a transaction keeps everybody from writing
until it goes on or is killed; that is SQLite's, and nothing is decided meanwhile.
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

LOOK_MS: Millis = 20  # between two looks for what others have written
BUSY_PAUSE_MS: Millis = 2
BUSY_MS_MAX: Millis = 1_500  # below the time that a keeper gives a request


class SharedStore(SqliteStore):
    """Otherwise like `SqliteStore`; it is closed while its tasks still run."""

    def close(self) -> None:
        self._looking.cancel()
        self._reader.close()
        super().close()

    async def _perform(self, write: Callable[[], T]) -> T:
        """All of `write` in one transaction: also what it reads first."""
        refused: list[StoreError] = []

        def attempt() -> T | None:
            try:
                return write()
            except FileUnavailable:
                raise
            except StoreError as error:  # an answer; the transaction is none the worse
                refused.append(error)
                return None

        result = await self._in_turn(attempt)
        if refused:
            raise refused[-1]
        return result  # type: ignore[return-value] # it was not refused

    async def _in_turn(self, work: Callable[[], T]) -> T:
        """Waits for whoever writes, without keeping anybody here from going on."""
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
        """For ever: wakes whoever watches when another process has written."""
        known = None
        while True:
            with suppress(apsw.Error):  # whoever reads next says what is wrong
                known, before = self._data_version(), known
                if known != before:
                    waiters.wake_all()
            await self._clock.sleep(LOOK_MS)

    def _data_version(self) -> int:
        """SQLite's count of commits by other connections than the one that asks."""
        return int(self._reader.pragma("data_version"))
