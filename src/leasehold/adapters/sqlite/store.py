"""A store in one SQLite file, for a fleet without Kubernetes and for the simulator's restarts.

Implements `ports.store.Store`; the writes are `adapters.objects`', shared with the store in
memory. A write is acknowledged when its transaction (object, change, version) is on the disk. Here
writes happen on the calling task and never suspend, as virtual time needs; `group.GroupStore` has
a thread for them. One process has the file at a time; `shared.SharedStore` is for several.
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
    """Raises `BadStore` when the file cannot be used. `prefix` names the uids of a file that is
    made now; without it a random one does, so that no two files have a uid in common."""

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
        """Why nothing can be written any more; "" while it can."""
        return self._storage.trouble

    def close(self) -> None:
        """Lets go of the file; watches end as `WatchExpired`. Closing twice is harmless."""
        self._let_go()
        self._waiters.wake_all()

    def reopen(self) -> None:
        """What a restart does to the file: lets go of it and takes it again."""
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
        """Where to read: here the writer's own, since nobody reads while it writes."""
        return storage

    def _writes_over(self, storage: FileStorage) -> ObjectWrites:
        return ObjectWrites(
            storage, self._clock, self._admit, prefix=storage.prefix, finalizers=self._finalizers
        )
