"""A store in memory with the manners of a Kubernetes API server, for the simulator and for tests.

Implements `ports.store.Store`. Objects are kept as encoded bytes, so that nobody can change what is
stored by changing what was read. The rules it enforces are the server's: names, labels and sizes,
versions, finalizers, graceful deletion of pods, and the immutability that our resource definitions
declare. It decides nothing about scheduling, and its calls never suspend (a watch does): delays and
faults are put around it by `sim.faulty`.

Like the server, `create` drops a status (a Node keeps it, a Pod becomes Pending), and an update
that changes nothing makes no new version.
"""

from bisect import bisect_right
from collections.abc import Callable

import msgspec

from leasehold.adapters.memory import rules
from leasehold.core.units import format_instant
from leasehold.ports.runtime import Clock, Tasks
from leasehold.ports.store import (
    AlreadyExists,
    Conflict,
    EventType,
    Expired,
    Invalid,
    Listing,
    NotFound,
    WatchEvent,
    Wire,
)

Admit = Callable[[Wire | None, Wire], list[tuple[str, str]]]
Key = tuple[str, str, str]  # kind, namespace, name

GRACE_MS = 30_000  # of a pod that names none
_SERVER_FIELDS = (
    "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds",
    "deletionGraceMs", "generation",
)  # fmt: skip
_encode = msgspec.json.Encoder(order="deterministic").encode
_decode = msgspec.json.Decoder(dict[str, object]).decode


class MemoryStore:
    """All objects of one cluster. `prefix` keeps the uids of two stores apart."""

    def __init__(
        self,
        tasks: Tasks,
        clock: Clock,
        admit: Admit | None = None,
        *,
        prefix: str = "uid",
        history_max: int = 10_000,
    ) -> None:
        self._tasks = tasks
        self._clock = clock
        self._admit = admit
        self._prefix = prefix
        self._history_max = history_max
        self._version = 0
        self._uids = 0
        self._kinds: dict[str, dict[tuple[str, str], bytes]] = {}
        self._histories: dict[str, _History] = {}

    async def get(self, kind: str, namespace: str, name: str) -> Wire:
        return self._read((kind, namespace, name))

    async def list(self, kind: str) -> Listing:
        stored = self._kinds.get(kind, {})
        return Listing([_decode(stored[key]) for key in sorted(stored)], self._version)

    def watch(self, kind: str, version: int) -> "MemoryWatch":
        return MemoryWatch(
            self._tasks, self._history(kind), version, is_future=version > self._version
        )

    async def create(self, obj: Wire) -> Wire:
        obj = _decode(_encode(obj))
        key = rules.key_of(obj)
        self._check(key, rules.problems_of(obj), None, obj)
        if key[1:] in self._kinds.get(key[0], {}):
            raise AlreadyExists(*key)
        self._uids += 1
        metadata = rules.part(obj, "metadata")
        for field in ("deletionTimestamp", "deletionGracePeriodSeconds", "deletionGraceMs"):
            metadata.pop(field, None)
        metadata["uid"] = f"{self._prefix}-{self._uids:06d}"
        metadata["creationTimestamp"] = format_instant(self._clock.now())
        metadata["generation"] = 1
        rules.reset_status(obj)
        return self._write("ADDED", key, obj)

    async def update(self, obj: Wire) -> Wire:
        obj = _decode(_encode(obj))
        key = rules.key_of(obj)
        metadata = rules.part(obj, "metadata")
        old = self._read(key)
        before = rules.part(old, "metadata")
        if "resourceVersion" not in metadata:
            raise Invalid([("metadata.resourceVersion", "is required to update")], *key)
        if metadata["resourceVersion"] != before["resourceVersion"]:
            raise Conflict(*key)
        if metadata.get("uid", before["uid"]) != before["uid"]:
            raise Conflict(*key)
        for field in _SERVER_FIELDS:
            metadata.pop(field, None)
            if field in before:
                metadata[field] = before[field]
        _put(obj, "status", old.get("status"))
        if rules.content(obj) != rules.content(old):
            metadata["generation"] = rules.integer(before["generation"]) + 1
        self._check(key, rules.problems_of(obj) + rules.problems_of_change(old, obj), old, obj)
        if rules.is_gone(obj):
            return self._remove(key, obj)
        return old if obj == old else self._write("MODIFIED", key, obj)

    async def patch_status(
        self, kind: str, namespace: str, name: str, status: Wire, *, version: int | None
    ) -> Wire:
        key = (kind, namespace, name)
        obj = self._read(key)
        if version is not None and rules.part(obj, "metadata")["resourceVersion"] != str(version):
            raise Conflict(*key)
        old = dict(obj)
        _put(obj, "status", _decode(_encode(status)))
        problems = rules.problems_of_status(old, obj)
        if problems:
            raise Invalid(problems, *key)
        return old if obj == old else self._write("MODIFIED", key, obj)

    async def delete(
        self, kind: str, namespace: str, name: str, *, uid: str | None, grace_ms: int | None = None
    ) -> None:
        key = (kind, namespace, name)
        obj = self._read(key)
        metadata = rules.part(obj, "metadata")
        if uid is not None and metadata["uid"] != uid:
            raise Conflict(*key)
        before = dict(metadata)
        grace = rules.grace_of(obj, grace_ms, default=GRACE_MS)
        if "deletionTimestamp" not in metadata or grace < rules.integer(
            metadata["deletionGraceMs"]
        ):
            metadata["deletionTimestamp"] = format_instant(self._clock.now() + grace)
            metadata["deletionGracePeriodSeconds"] = -(-grace // 1000)
            metadata["deletionGraceMs"] = grace
        if rules.is_gone(obj):
            self._remove(key, obj)
        elif metadata != before:
            self._write("MODIFIED", key, obj)

    def _read(self, key: Key) -> Wire:
        stored = self._kinds.get(key[0], {}).get(key[1:])
        if stored is None:
            raise NotFound(*key)
        return _decode(stored)

    def _check(self, key: Key, problems: rules.Problems, old: Wire | None, new: Wire) -> None:
        """The server's own rules first; what admission is asked about is at least well-formed."""
        if not problems and self._admit is not None:
            problems = self._admit(
                None if old is None else _decode(_encode(old)), _decode(_encode(new))
            )
        if problems:
            raise Invalid(problems, *key)

    def _write(self, event: EventType, key: Key, obj: Wire) -> Wire:
        encoded = self._stamp(obj)
        if len(encoded) > rules.OBJECT_BYTES_MAX:
            self._version -= 1
            raise Invalid([("", f"{len(encoded)} bytes; at most {rules.OBJECT_BYTES_MAX}")], *key)
        self._kinds.setdefault(key[0], {})[key[1:]] = encoded
        self._history(key[0]).add(self._version, event, encoded)
        return _decode(encoded)

    def _remove(self, key: Key, obj: Wire) -> Wire:
        encoded = self._stamp(obj)
        del self._kinds[key[0]][key[1:]]
        self._history(key[0]).add(self._version, "DELETED", encoded)
        return _decode(encoded)

    def _stamp(self, obj: Wire) -> bytes:
        self._version += 1
        rules.part(obj, "metadata")["resourceVersion"] = str(self._version)
        return _encode(obj)

    def _history(self, kind: str) -> "_History":
        if kind not in self._histories:
            self._histories[kind] = _History(self._history_max)
        return self._histories[kind]


class MemoryWatch:
    """A reader of one kind's history; it wakes when something is added there."""

    def __init__(self, tasks: Tasks, history: "_History", version: int, *, is_future: bool) -> None:
        self._history = history
        self._signal = tasks.signal()
        self._position = history.position_after(version)
        self._closed = is_future  # a version we never gave out is another store's

    async def next(self) -> WatchEvent:
        while not self._closed and self._position == self._history.length:
            self._history.waiting.append(self._signal.set)
            await self._signal.wait(None)
        if self._closed or self._position is None or self._position < self._history.dropped:
            raise Expired
        event, encoded = self._history.at(self._position)
        self._position += 1
        return WatchEvent(event, _decode(encoded))

    def close(self) -> None:
        self._closed = True
        self._signal.set()


class _History:
    """The last changes of one kind, and whoever waits for the next one."""

    def __init__(self, size_max: int) -> None:
        self.waiting: list[Callable[[], None]] = []
        self.dropped = 0  # how many were there before the oldest one kept
        self._size_max = size_max
        self._dropped_version = 0
        self._versions: list[int] = []
        self._events: list[tuple[EventType, bytes]] = []

    @property
    def length(self) -> int:
        return self.dropped + len(self._events)

    def at(self, position: int) -> tuple[EventType, bytes]:
        return self._events[position - self.dropped]

    def position_after(self, version: int) -> int | None:
        if version < self._dropped_version:
            return None
        return self.dropped + bisect_right(self._versions, version)

    def add(self, version: int, event: EventType, encoded: bytes) -> None:
        self._versions.append(version)
        self._events.append((event, encoded))
        if len(self._events) >= 2 * self._size_max:
            self._forget(len(self._events) - self._size_max)
        waiting, self.waiting = self.waiting, []
        for wake in waiting:
            wake()

    def _forget(self, count: int) -> None:
        self._dropped_version = self._versions[count - 1]
        self.dropped += count
        del self._versions[:count]
        del self._events[:count]


def _put(obj: Wire, field: str, value: object) -> None:
    if value is None:
        obj.pop(field, None)
    else:
        obj[field] = value
