"""Reads that are answered by a replica which lags behind the store.

Only reads that allow it are answered so. Contenders read the tenure record, which only a
conditional write changes. Kubelets list their pods from a cache, as real ones do, but never from a
cache that is older than what they have seen. The head, and everything from which a controller
recovers, is read from the store.
"""

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Collection
from random import Random

from leasehold.adapters.objects.storage import Change, Key, decode
from leasehold.core.names import Wire
from leasehold.core.units import SECOND, Instant, Millis
from leasehold.ports.store import Listing, NotFound, Store, Watch, WatchEvent
from leasehold.sim.store_wrapper import StoreAround

LAG_MAX: Millis = 4 * SECOND
STALE = "stale-read"


class LaggingReplica:
    """Keeps the past states of objects of some kinds."""

    def __init__(self, seed: int, rate: float, now: Callable[[], Instant]) -> None:
        self._seed = seed
        self._rate = rate
        self._now = now
        self._kinds: set[str] = set()
        self._streams: dict[str, Random] = {}
        self._times: list[Instant] = []  # of every change; `_versions` has the version after it
        self._versions: list[int] = []
        self._past: dict[Key, list[tuple[int, bytes | None]]] = {}  # by version; None: deleted
        self._newest: dict[str, int] = {}  # by kind, the version of the last change
        self.effects: Counter[str] = Counter()

    def keep(self, kinds: Collection[str]) -> None:
        self._kinds |= set(kinds)

    def stop(self) -> None:
        """Stop lagging: from now on every read gets the current state."""
        self._rate = 0.0

    def on_change(self, change: Change) -> None:
        if not self._rate:
            return
        self._times.append(self._now())
        self._versions.append(change.version)
        if change.key[0] in self._kinds:
            body = None if change.event == "DELETED" else change.body
            self._past.setdefault(change.key, []).append((change.version, body))
            self._newest[change.key[0]] = change.version

    def draw(self, process: str) -> int | None:
        """Draw the version of the store with which to answer a read. None means the current
        version."""
        if not self._rate or self._stream(process).random() >= self._rate:
            return None
        at = self._now() - self._stream(process).randrange(LAG_MAX)
        index = bisect_right(self._times, at)
        return self._versions[index - 1] if index else None

    def read(self, key: Key, version: int) -> bytes | None:
        return next((body for at, body in reversed(self._past.get(key, [])) if at <= version), None)

    def read_all(self, kind: str, version: int) -> list[bytes]:
        read = [(key, self.read(key, version)) for key in sorted(self._past) if key[0] == kind]
        return [body for _, body in read if body is not None]

    def is_behind(self, kind: str, version: int) -> bool:
        """Return whether an object of this kind has changed since `version`."""
        return self._newest.get(kind, 0) > version

    def _stream(self, process: str) -> Random:
        if process not in self._streams:
            self._streams[process] = Random(f"{self._seed}/{process}/{STALE}")
        return self._streams[process]


class StaleStore(StoreAround):
    """A store that answers some reads with an older state. `got`: the kinds for `get`; `listed`:
    the kinds for `list`."""

    def __init__(
        self,
        store: Store,
        process: str,
        replica: LaggingReplica,
        *,
        got: Collection[str] = (),
        listed: Collection[str] = (),
    ) -> None:
        super().__init__(store)
        self._process = process
        self._replica = replica
        self._got = got
        self._listed = listed
        self._seen: dict[str, int] = {}  # by kind, the version seen
        replica.keep([*got, *listed])

    async def get(self, kind: str, namespace: str, name: str) -> Wire:
        version = self._replica.draw(self._process) if kind in self._got else None
        if version is None or not self._replica.is_behind(kind, version):
            return await self._store.get(kind, namespace, name)
        self._replica.effects[STALE] += 1
        body = self._replica.read((kind, namespace, name), version)
        if body is None:
            raise NotFound(kind, namespace, name)
        return decode(body)

    async def list(self, kind: str) -> Listing:
        version = self._replica.draw(self._process) if kind in self._listed else None
        if version is None or version < self._seen.get(kind, 0):
            listing = await self._store.list(kind)
        else:
            self._replica.effects[STALE] += self._replica.is_behind(kind, version)
            bodies = self._replica.read_all(kind, version)
            listing = Listing(items=[decode(body) for body in bodies], version=version)
        self._seen[kind] = max(listing.version, self._seen.get(kind, 0))
        return listing

    def watch(self, kind: str, version: int) -> Watch:
        watch = self._store.watch(kind, version)
        return _SeenWatch(watch, self._seen, kind) if kind in self._listed else watch


class _SeenWatch:
    """A watch that records the last version it has delivered."""

    def __init__(self, watch: Watch, seen: dict[str, int], kind: str) -> None:
        self._watch = watch
        self._seen = seen
        self._kind = kind

    async def next(self) -> WatchEvent:
        event = await self._watch.next()
        self._seen[self._kind] = max(event.version, self._seen.get(self._kind, 0))
        return event

    def close(self) -> None:
        self._watch.close()
