"""A store in one SQLite file, for a fleet without Kubernetes and for the simulator's restarts.

Implements `ports.store.Store`; the writes are those of `adapters.objects`, shared with the memory
store. A write is acknowledged once its transaction (object, change, version) is on disk. Writes run
on the calling task and never suspend, as virtual time requires; `group.GroupStore` can commit on a
thread. One process at a time can use the file; `shared.SharedStore` is for several.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from leasehold.adapters.objects.storage import Change
from leasehold.adapters.objects.store import ChangeWaiters, ObjectStore
from leasehold.adapters.objects.writes import Admit, ObjectWrites
from leasehold.adapters.sqlite.lock import FileLock
from leasehold.adapters.sqlite.schema import open_file
from leasehold.adapters.sqlite.storage import FileObjects, FileStorage
from leasehold.ports.runtime import Clock, Tasks


class SqliteStore(ObjectStore):
    """A store in a SQLite file; raises `BadStore` if the file cannot be used.

    `prefix` begins the uids of a new file. By default it is random, so that the uids of two files
    differ."""

    def __init__(
        self,
        path: Path,
        tasks: Tasks,
        clock: Clock,
        admit: Admit | None = None,
        *,
        prefix: str | None = None,
        history_max: int = 10_000,
        finalizers: Mapping[str, str] | None = None,
    ) -> None:
        self.path = path
        self._tasks = tasks
        self._clock = clock
        self._admit = admit
        self._prefix = prefix
        self._history_max = history_max
        self._finalizers = finalizers
        waiters = ChangeWaiters()
        storage = self._open(waiters)
        super().__init__(tasks, waiters, self._objects_over(storage), self._writes_over(storage))

    @property
    def trouble(self) -> str:
        """Why nothing can be written any more; "" if writing works."""
        return self._storage.trouble

    def close(self) -> None:
        """Close the file; watches end with `WatchExpired`. Closing twice is harmless."""
        self._let_go()
        self._waiters.wake_all()

    def reopen(self) -> None:
        """Simulate a restart: close the file and open it again."""
        self.close()
        storage = self._open(self._waiters)
        self._objects, self._writes = self._objects_over(storage), self._writes_over(storage)

    def _open(self, waiters: ChangeWaiters) -> FileStorage:
        return self._open_storage(waiters.wake_for)

    def _open_storage(self, tell: Callable[[Sequence[Change]], None]) -> FileStorage:
        self._lock = FileLock(self.path)
        try:
            self._connection = open_file(self.path, prefix=self._prefix)
            self._storage = FileStorage(
                self._connection, self.path, tell=tell, history_max=self._history_max
            )
            return self._storage
        except BaseException:
            self._lock.release()
            raise

    def _let_go(self) -> None:
        self._connection.close()
        self._lock.release()

    def _objects_over(self, storage: FileStorage) -> FileObjects:
        """Return what reads use. Here it is the writer's own connection, because no read happens
        during a write."""
        return storage

    def _writes_over(self, storage: FileStorage) -> ObjectWrites:
        return ObjectWrites(
            storage, self._clock, self._admit, prefix=storage.prefix, finalizers=self._finalizers
        )
