"""A store in one SQLite file, for a fleet without Kubernetes and for the simulator's restarts.

Implements `ports.store.Store`; the manners are `adapters.objects`', shared with the store in
memory. A write is acknowledged when its transaction (object, change, version) is on the disk. Here
writes happen on the calling task and never suspend, as virtual time needs; `group.GroupStore` has
a thread for them. One process has the file at a time.
"""

from pathlib import Path

from leasehold.adapters.objects.manners import Admit, Manners
from leasehold.adapters.objects.store import Bells, ObjectStore
from leasehold.adapters.sqlite.lock import FileLock
from leasehold.adapters.sqlite.schema import open_file
from leasehold.adapters.sqlite.shelf import FileShelf
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
    ) -> None:
        self.path = path
        self._clock = clock
        self._admit = admit
        self._prefix = prefix
        self._history_max = history_max
        bells = Bells()
        self._open(bells)
        super().__init__(tasks, bells, self._shelf, self._manners)

