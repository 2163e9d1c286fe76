"""Reads answered by a replica that lags behind the store.

Used for reads that do not need the port's guarantees: contenders read the tenure record, which only
a conditional write changes; kubelets list their pods from a cache like real ones, but never from
one older than what they have seen. The head, and everything a controller recovers from, is read
from the store.
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
    """The past states of some kinds over the last few seconds."""

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
        """Stop lagging."""
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
        """Return the version of which to answer this read; None: the current one."""
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
        """Return whether anything of this kind has changed since."""
        return self._newest.get(kind, 0) > version

    def _stream(self, process: str) -> Random:
        if process not in self._streams:
            self._streams[process] = Random(f"{self._seed}/{process}/{STALE}")
        return self._streams[process]


class StaleStore(StoreAround):
    """Answers some gets (kinds `got`) and lists (kinds `listed`) from the replica."""

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
    """Records the last version that its reader has seen."""

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
