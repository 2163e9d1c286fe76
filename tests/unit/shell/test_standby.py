"""A standby takes over without reading the ledger again, and knows its content."""

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TypeVar

import pytest
from tests.questions.played import ADMIN
from tests.unit.shell.planes import Cluster, tenure

from leasehold.core.names import API_VERSION
from leasehold.core.units import HOUR, MINUTE, SECOND
from leasehold.ports.store import Answers, Delete, Store, Unavailable, Watch, Write
from leasehold.shell.archive.reader import Archive
from leasehold.shell.plane import Plane
from leasehold.sim.scenario.ledger import at_once, ledger_problems, objects_of
from leasehold.sim.store_wrapper import StoreAround

T = TypeVar("T")
LEDGER = ("Lease", "LedgerBatch")


class Counted(StoreAround):
    """Counts how often each kind is read as a whole. Watches of the kind `deaf_to` break."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.read: Counter[str] = Counter()
        self.removed = 0
        self.deaf_to: str = ""

    async def _call(self, verb: str, kind: str, call: Callable[[], Awaitable[T]]) -> T:
        self.read[kind] += verb in ("list", "scan")
        return await call()

    async def write_all(self, writes: Sequence[Write]) -> Answers:
        self.removed += sum(isinstance(each, Delete) for each in writes)
        return await super().write_all(writes)

    def watch(self, kind: str, version: int) -> Watch:
        return Deaf(self, kind, super().watch(kind, version))


class Stuck(StoreAround):
    """Fails to remove ledger objects while `is_stuck`."""

    is_stuck = False

    async def _call(self, verb: str, kind: str, call: Callable[[], Awaitable[T]]) -> T:
        if self.is_stuck and verb in ("delete", "write_all") and kind in LEDGER:
            raise Unavailable("it cannot be removed")
        return await call()


class Deaf:
    def __init__(self, store: Counted, kind: str, watch: Watch) -> None:
        self._store, self._kind, self._watch = store, kind, watch

    async def next(self) -> object:
        event = await self._watch.next()
        if self._kind == self._store.deaf_to:
            raise Unavailable("nothing is heard")
        return event

    def close(self) -> None:
        self._watch.close()


class Pair:
    """A leader and a standby."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cluster = Cluster(folder)
        self.seen = Counted(self.cluster.store)
        self.leading = Stuck(self.cluster.store)
        self.first = self.cluster.plane("first", self.leading)
        self.second = self.cluster.plane("second", self.seen, stands_by=True)
        self.first.gained(tenure(1))
        self.cluster.wait(10 * SECOND)

    def run(self, *names: str) -> None:
        """Submit these runs one after another, and let each complete."""
        for name in names:
            self.cluster.submit(f"t/{name}")
            self.cluster.wait(MINUTE)
            assert self.cluster.phase(self.first, f"t/{name}") == "Running"
            self.end(self.first, name)

    def end(self, plane: Plane, name: str) -> None:
        world = plane.world
        assert world is not None, "it leads"
        self.cluster.fleet.exit_pod((world.uid_of[f"t/{name}"], 0, 0), 0)
        self.cluster.wait(MINUTE)
        assert self.cluster.phase(plane, f"t/{name}") == "Completed"

    def take_over(self) -> None:
        self.seen.read.clear()
        self.first.lost("no renewal was answered")
        self.second.gained(tenure(2))
        self.cluster.wait(10 * SECOND)
        assert self.problems() == []

    def problems(self) -> list[str]:
        return ledger_problems(self.cluster.store, Archive(self.folder))


@pytest.fixture
def pair(tmp_path: Path) -> Pair:
    return Pair(tmp_path)


def _names(cluster: Cluster, kind: str) -> set[str]:
    return {str(each["metadata"]["name"]) for each in objects_of(cluster.store, kind)}  # type: ignore[index]


def test_standby_takes_over_without_reading_leases_or_batches(pair: Pair) -> None:
    pair.run("a", "b")
    pair.cluster.submit("t/c")
    pair.cluster.wait(MINUTE)
    pair.take_over()
    assert [pair.seen.read[kind] for kind in LEDGER] == [0, 0]
    assert pair.seen.read["Pod"] > 0
    assert pair.cluster.phase(pair.second, "t/a") == "Completed"
    assert pair.cluster.phase(pair.second, "t/c") == "Running"
    pair.end(pair.second, "c")
    assert pair.cluster.fleet.breaches == []
    assert pair.problems() == []


def test_deposed_replica_becomes_standby_again(pair: Pair) -> None:
    pair.run("a")
    pair.second.lost("no renewal was answered")  # it never led
    pair.take_over()
    assert pair.cluster.phase(pair.second, "t/a") == "Completed"
    pair.second.lost("no renewal was answered")
    pair.first.gained(tenure(3))
    pair.cluster.wait(10 * SECOND)
    pair.run("b")
    pair.seen.read.clear()
    pair.first.lost("no renewal was answered")
    pair.second.gained(tenure(4))
    pair.cluster.wait(10 * SECOND)
    assert [pair.seen.read[kind] for kind in LEDGER] == [0, 0]
    assert pair.cluster.phase(pair.second, "t/b") == "Completed"


@pytest.mark.parametrize("kind", ["LedgerBatch", "LedgerHead"])
def test_standby_that_missed_the_last_batch_reads_the_whole_ledger(pair: Pair, kind: str) -> None:
    pair.run("a")
    pair.seen.deaf_to = kind
    pair.cluster.submit("t/b")
    pair.cluster.wait(SECOND // 4)  # the watch breaks and is about to restart
    pair.seen._call = _never_listed(pair.seen, kind)  # type: ignore[method-assign]
    pair.cluster.submit("t/c")
    pair.cluster.wait(MINUTE)
    pair.take_over()
    assert [pair.seen.read[each] for each in LEDGER] == [1, 2]
    for name in ("b", "c"):
        assert pair.cluster.phase(pair.second, f"t/{name}") == "Running"


def _never_listed(seen: Counted, kind: str) -> Callable[..., Awaitable[object]]:
    """Refuse every `list` of this kind, so that a follower cannot restart; answer other calls."""
    real = Counted._call

    async def call(verb: str, asked: str, call: Callable[[], Awaitable[T]]) -> T:
        if (verb, asked) == ("list", kind):
            raise Unavailable("nothing is heard")
        return await real(seen, verb, asked, call)

    return call


def test_standby_drops_compacted_leases_and_still_counts_their_use(pair: Pair) -> None:
    pair.run("a", "b", "c")
    pair.cluster.wait(2 * HOUR)
    pair.run("d")
    pair.first.compactor.request()
    pair.first.controller.wake()
    pair.cluster.wait(MINUTE)
    left = _names(pair.cluster, "Lease")
    assert len(left) == 1, "those of a, b and c are archived"
    used = _used(pair.first)
    pair.take_over()
    assert [pair.seen.read[kind] for kind in LEDGER] == [0, 0]
    assert pair.seen.removed == 0, "all of it was"
    assert _used(pair.second) == used
    assert _names(pair.cluster, "Lease") == left
    assert pair.cluster.phase(pair.second, "t/d") == "Completed"


def test_new_leader_completes_an_interrupted_compaction(pair: Pair) -> None:
    """The old leader has written the checkpoint, and stops before it has removed anything."""
    pair.run("a", "b", "c")
    pair.cluster.wait(2 * HOUR)
    kept = _names(pair.cluster, "Lease")
    pair.leading.is_stuck = True
    pair.first.compactor.request()
    pair.first.controller.wake()
    pair.cluster.wait(MINUTE)
    assert objects_of(pair.cluster.store, "LedgerCheckpoint")
    assert _names(pair.cluster, "Lease") == kept
    pair.take_over()
    pair.cluster.wait(MINUTE)
    assert _names(pair.cluster, "Lease") == set()
    assert pair.problems() == []


def test_new_leader_ignores_and_removes_uncommitted_batch(pair: Pair) -> None:
    pair.run("a")
    [head] = objects_of(pair.cluster.store, "LedgerHead")
    seq = head["spec"]["seq"] + 1  # type: ignore[index,operator]
    wire = {
        "apiVersion": API_VERSION,
        "kind": "LedgerBatch",
        "metadata": {"name": f"{seq}-00000000"},
        "spec": {"seq": seq, "epoch": 1, "digest": "0" * 64, "batch": {"seq": seq}},
    }
    at_once(pair.cluster.store.create(wire))
    pair.run("b")
    pair.take_over()
    pair.cluster.wait(MINUTE)
    assert pair.cluster.phase(pair.second, "t/b") == "Completed"
    assert f"{seq}-00000000" not in _names(pair.cluster, "LedgerBatch")


def _used(plane: Plane) -> object:
    """GPU-hours of every envelope."""
    answered = at_once(plane.questions.answer(ADMIN, "budgets", {}))
    return answered.found
