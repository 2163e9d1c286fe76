"""An in-memory store with the semantics of a Kubernetes API server, for simulator and tests.

Implements `ports.store.Store`. The writes are those of `adapters.objects`, shared with the SQLite
store. Only a watch ever suspends; `sim.faulty` adds delays and faults.
"""

from collections.abc import Callable

from leasehold.adapters.objects.history import History
from leasehold.adapters.objects.storage import Change, Key, NamedBody, NamespacedName, PastChange
from leasehold.adapters.objects.store import ChangeWaiters, ObjectStore
from leasehold.adapters.objects.writes import Admit, ObjectWrites
from leasehold.ports.runtime import Clock, Tasks

OnChange = Callable[[Change], None]


class MemoryStore(ObjectStore):
    """All objects of one cluster. Every uid begins with `prefix`, so that two stores have different
    uids."""

    def __init__(
        self,
        tasks: Tasks,
        clock: Clock,
        admit: Admit | None = None,
        *,
        prefix: str = "uid",
        history_max: int = 10_000,
        on_change: OnChange | None = None,
    ) -> None:
        """`on_change` is called after every write, before its caller continues."""
        waiters = ChangeWaiters()
        storage = MemoryStorage(waiters, history_max=history_max, on_change=on_change)
        super().__init__(
            tasks, waiters, storage, ObjectWrites(storage, clock, admit, prefix=prefix)
        )


class MemoryStorage:
    def __init__(
        self, waiters: ChangeWaiters, *, history_max: int, on_change: OnChange | None = None
    ) -> None:
        self._on_change = on_change
        self.version = 0
        self.created = 0
        self._waiters = waiters
        self._history_max = history_max
        self._kinds: dict[str, dict[tuple[str, str], bytes]] = {}
        self._histories: dict[str, History] = {}

    def read(self, key: Key) -> bytes | None:
        return self._kinds.get(key[0], {}).get(key[1:])

    def read_all(self, kind: str, namespace: str | None = None) -> tuple[list[bytes], int]:
        stored = self._kinds.get(kind, {})
        places = sorted(stored)
        if namespace is not None:
            places = [place for place in places if place[0] == namespace]
        return [stored[place] for place in places], self.version

    def read_page(
        self, kind: str, namespace: str | None, *, after: NamespacedName, count: int
    ) -> tuple[list[NamedBody], int]:
        stored = self._kinds.get(kind, {})
        places = [
            place for place in sorted(stored) if place > after and namespace in (None, place[0])
        ]
        return [(place, stored[place]) for place in places[:count]], self.version

    def scan(self, kind: str, see: Callable[[bytes], None]) -> int:
        stored, version = self.read_all(kind)
        for body in stored:
            see(body)
        return version

    def next_changes(self, kind: str, after: int, *, count: int) -> list[PastChange]:
        history = self._histories.get(kind)
        return [] if history is None else history.next_changes(after, count)

    def put(self, change: Change) -> None:
        assert change.version == self.version + 1, change.version
        kind, place = change.key[0], change.key[1:]
        stored = self._kinds.setdefault(kind, {})
        if change.event == "DELETED":
            del stored[place]
        else:
            stored[place] = change.body
        self.version = change.version
        self.created += change.event == "ADDED"
        if kind not in self._histories:
            self._histories[kind] = History(self._history_max)
        self._histories[kind].add(PastChange(change.version, change.event, change.body))
        self._waiters.wake(kind)
        if self._on_change is not None:
            self._on_change(change)
