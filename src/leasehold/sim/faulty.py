"""A store with faults: unreliable answers, and a process that may crash at any write.

The simulator wraps the shared store once per start of a process. Only what can happen in reality is
simulated: a conflict is caused by a real write to the object, and a lost answer by a real write
whose result is dropped. An effect is counted when it happens, not when it is drawn. Each kind of
fault has its own random stream per process, so removing one kind does not change the others.
"""

from collections import Counter, deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from random import Random
from typing import TypeVar

from leasehold.core.names import Wire
from leasehold.ports.store import (
    Answers,
    Conflict,
    NotFound,
    OutcomeUnknown,
    Store,
    StoreError,
    Unavailable,
    Watch,
    WatchEvent,
    WatchExpired,
    Write,
    perform,
    written_object,
)
from leasehold.sim.kernel import Crashed, Process
from leasehold.sim.store_wrapper import READS, StoreAround

T = TypeVar("T")

TOUCHED = "sim.leasehold/touched"  # annotation written to cause a conflict
WATCH_LAG_MS_MAX = 5_000
LATENCY_MS_MAX = 200

KINDS = (
    "refuse",  # a write is refused with Unavailable; nothing happened
    "lose-request",  # OutcomeUnknown, nothing happened
    "lose-answer",  # OutcomeUnknown, although it happened
    "conflict",  # another writer touched the object just before
    "kill-before",  # the process dies before its write
    "kill-after",  # the process dies after its write
    "read-refuse",  # a get or list is refused
    "reorder",  # writes sent together are executed in another order
    "slow",  # a call takes up to LATENCY_MS_MAX
    "watch-lag",  # an event is delayed by up to WATCH_LAG_MS_MAX
    "watch-repeat",  # an event is repeated
    "watch-break",  # a watch expires
)


class Faults:
    """The rate of each kind of fault, the random streams they are drawn from, and how often each
    took effect."""

    def __init__(self, seed: int, rates: Mapping[str, float]) -> None:
        unknown = sorted(set(rates) - set(KINDS))
        assert not unknown, f"no such fault: {unknown}"
        self.effects: Counter[str] = Counter()
        self._seed = seed
        self._rates = dict(rates)
        self._streams: dict[tuple[str, str], Random] = {}

    def stop(self) -> None:
        """Stop all faults."""
        self._rates = {}

    def strikes(self, kind: str, process: str) -> bool:
        """Draw whether a fault of this kind happens to this process now."""
        rate = self._rates.get(kind, 0.0)
        return rate > 0 and self.stream(kind, process).random() < rate

    def stream(self, kind: str, process: str) -> Random:
        found = self._streams.get((kind, process))
        if found is None:
            found = self._streams[kind, process] = Random(f"{self._seed}/{process}/{kind}")
        return found


class FaultyStore(StoreAround):
    """The store as one start of a process sees it. Calls of a process that has crashed raise
    `Crashed`."""

    def __init__(self, store: Store, process: Process, faults: Faults) -> None:
        super().__init__(store)
        self._process = process
        self._incarnation = process.incarnation
        self._faults = faults

    async def _call(self, verb: str, kind: str, call: Callable[[], Awaitable[T]]) -> T:
        if verb not in READS:
            return await self._write(call)
        await self._travel()
        if self._strikes("read-refuse"):
            raise Unavailable(kind)
        return await call()

    def watch(self, kind: str, version: int) -> "FaultyWatch":
        self._assert_alive()
        return FaultyWatch(self._store.watch(kind, version), self._process, self._faults)

    async def update(self, obj: Wire) -> Wire:
        metadata = obj["metadata"]
        assert isinstance(metadata, dict), obj
        kind, namespace = str(obj["kind"]), str(metadata.get("namespace", ""))
        return await self._write(
            lambda: self._store.update(obj), touch=(kind, namespace, str(metadata["name"]))
        )

    async def patch_status(
        self, kind: str, namespace: str, name: str, status: Wire, *, version: int | None
    ) -> Wire:
        return await self._write(
            lambda: self._store.patch_status(kind, namespace, name, status, version=version),
            touch=None if version is None else (kind, namespace, name),
        )

    async def bind(
        self, namespace: str, name: str, node: str, *, uid: str, version: int | None = None
    ) -> None:
        await self._write(
            lambda: self._store.bind(namespace, name, node, uid=uid, version=version),
            touch=None if version is None else ("Pod", namespace, name),
        )

    async def write_all(self, writes: Sequence[Write]) -> Answers:
        """Do the writes one by one, each with its own faults; the process may die between two of
        them. Writes to different objects may be reordered."""
        order = list(range(len(writes)))
        if self._faults.strikes("reorder", self._process.name):
            order = _as_they_come(writes, self._faults.stream("reorder", self._process.name))
            self._faults.effects["reorder"] += order != sorted(order)
        answers = await one_by_one(self, [writes[each] for each in order])
        given = dict(zip(order, answers, strict=True))
        return [given[each] for each in range(len(writes))]

    async def _write(
        self, write: Callable[[], Awaitable[T]], *, touch: tuple[str, str, str] | None = None
    ) -> T:
        await self._travel()
        if self._strikes("kill-before"):
            self._process.crash()
        if self._strikes("refuse"):
            raise Unavailable
        if self._strikes("lose-request"):
            raise OutcomeUnknown
        if touch is not None and self._faults.strikes("conflict", self._process.name):
            await self._touch(*touch)
        result = await write()
        if self._strikes("kill-after"):
            self._process.crash()
        await self._travel()
        if self._strikes("lose-answer"):
            raise OutcomeUnknown
        return result

    async def _travel(self) -> None:
        self._assert_alive()
        if self._strikes("slow"):
            stream = self._faults.stream("slow", self._process.name)
            await self._process.clock.sleep(stream.randrange(LATENCY_MS_MAX + 1))

    async def _touch(self, kind: str, namespace: str, name: str) -> None:
        """Write an annotation to the object, so that the process' own conditional write of it
        fails."""
        try:
            obj = await self._store.get(kind, namespace, name)
            metadata = obj["metadata"]
            assert isinstance(metadata, dict), name
            annotations = dict(metadata.get("annotations", {}))
            annotations[TOUCHED] = str(int(annotations.get(TOUCHED, "0")) + 1)
            metadata["annotations"] = annotations
            await self._store.update(obj)
        except (NotFound, Conflict):
            return
        self._faults.effects["conflict"] += 1

    def _strikes(self, kind: str) -> bool:
        """Draw a fault that always takes effect, and count it if it happens."""
        struck = self._faults.strikes(kind, self._process.name)
        if struck:
            self._faults.effects[kind] += 1
        return struck

    def _assert_alive(self) -> None:
        if self._process.incarnation != self._incarnation:
            raise Crashed


def _as_they_come(writes: Sequence[Write], stream: Random) -> list[int]:
    """Return a random order in which a network could deliver the writes. Writes to the same object
    keep their order."""
    waiting: dict[tuple[str, str, str], deque[int]] = {}
    for index, write in enumerate(writes):
        waiting.setdefault(written_object(write), deque()).append(index)
    order = []
    while waiting:
        key = stream.choice(list(waiting))
        order.append(waiting[key].popleft())
        if not waiting[key]:
            del waiting[key]
    return order


async def one_by_one(store: Store, writes: Sequence[Write]) -> Answers:
    """Do the writes of a `write_all` as single calls."""
    answers: Answers = []
    for write in writes:
        try:
            answers.append(await perform(store, write))
        except StoreError as error:
            answers.append(error)
    return answers


class FaultyWatch:
    """A watch that may delay events, repeat them, or break. It keeps their order and adds none that
    did not happen."""

    def __init__(self, watch: Watch, process: Process, faults: Faults) -> None:
        self._watch = watch
        self._process = process
        self._faults = faults
        self._last: WatchEvent | None = None

    async def next(self) -> WatchEvent:
        if self._last is not None and self._strikes("watch-repeat"):
            return self._last
        if self._strikes("watch-break"):
            self._watch.close()
            raise WatchExpired
        event = await self._watch.next()
        if self._strikes("watch-lag"):
            stream = self._faults.stream("watch-lag", self._process.name)
            await self._process.clock.sleep(stream.randrange(WATCH_LAG_MS_MAX + 1))
        self._last = event
        return event

    def close(self) -> None:
        self._watch.close()

    def _strikes(self, kind: str) -> bool:
        struck = self._faults.strikes(kind, self._process.name)
        if struck:
            self._faults.effects[kind] += 1
        return struck
