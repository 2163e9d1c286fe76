"""Who stood by takes over without reading the ledger again, and knows what it says."""

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
    """How often which kind was read as a whole. While it is `deaf`, watches break."""

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
    """Once it `is_stuck`, nothing is removed any more."""

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


class Two:
    """One that leads and one that stands by."""

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
        """Submitted, run, and over, one after another."""
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
def two(tmp_path: Path) -> Two:
    return Two(tmp_path)


def _names(cluster: Cluster, kind: str) -> set[str]:
    return {str(each["metadata"]["name"]) for each in objects_of(cluster.store, kind)}  # type: ignore[index]


def test_a_take_over_reads_neither_leases_nor_batches(two: Two) -> None:
    two.run("a", "b")
    two.cluster.submit("t/c")
    two.cluster.wait(MINUTE)
    two.take_over()
    assert [two.seen.read[kind] for kind in LEDGER] == [0, 0]
    assert two.seen.read["Pod"] > 0
    assert two.cluster.phase(two.second, "t/a") == "Completed"
    assert two.cluster.phase(two.second, "t/c") == "Running"
    two.end(two.second, "c")
    assert two.cluster.fleet.breaches == []
    assert two.problems() == []


def test_who_was_deposed_stands_by_again(two: Two) -> None:
    two.run("a")
    two.second.lost("no renewal was answered")  # it never led
    two.take_over()
    assert two.cluster.phase(two.second, "t/a") == "Completed"
    two.second.lost("no renewal was answered")
    two.first.gained(tenure(3))
    two.cluster.wait(10 * SECOND)
    two.run("b")
    two.seen.read.clear()
    two.first.lost("no renewal was answered")
    two.second.gained(tenure(4))
    two.cluster.wait(10 * SECOND)
    assert [two.seen.read[kind] for kind in LEDGER] == [0, 0]
    assert two.cluster.phase(two.second, "t/b") == "Completed"


@pytest.mark.parametrize("kind", ["LedgerBatch", "LedgerHead"])
def test_who_has_not_heard_the_last_batch_reads_all_of_it(two: Two, kind: str) -> None:
    two.run("a")
    two.seen.deaf_to = kind
    two.cluster.submit("t/b")
    two.cluster.wait(SECOND // 4)  # its watch breaks, and is about to begin anew
    two.seen._call = _never_listed(two.seen, kind)  # type: ignore[method-assign]
    two.cluster.submit("t/c")
    two.cluster.wait(MINUTE)
    two.take_over()
    assert [two.seen.read[each] for each in LEDGER] == [1, 2]
    for name in ("b", "c"):
        assert two.cluster.phase(two.second, f"t/{name}") == "Running"


def _never_listed(seen: Counted, kind: str) -> Callable[..., Awaitable[object]]:
    """A follower that begins anew is not answered; whoever scans is."""
    real = Counted._call

    async def call(verb: str, asked: str, call: Callable[[], Awaitable[T]]) -> T:
        if (verb, asked) == ("list", kind):
            raise Unavailable("nothing is heard")
        return await real(seen, verb, asked, call)

    return call


def test_what_was_compacted_meanwhile_is_gone_and_stays_counted(two: Two) -> None:
    two.run("a", "b", "c")
    two.cluster.wait(2 * HOUR)
    two.run("d")
    two.first.compactor.request()
    two.first.controller.wake()
    two.cluster.wait(MINUTE)
    left = _names(two.cluster, "Lease")
    assert len(left) == 1, "those of a, b and c are archived"
    used = _used(two.first)
    two.take_over()
    assert [two.seen.read[kind] for kind in LEDGER] == [0, 0]
    assert two.seen.removed == 0, "all of it was"
    assert _used(two.second) == used
    assert _names(two.cluster, "Lease") == left
    assert two.cluster.phase(two.second, "t/d") == "Completed"


def test_a_compaction_that_was_cut_off_is_completed(two: Two) -> None:
    """The checkpoint is written, and who wrote it is gone before it removed anything."""
    two.run("a", "b", "c")
    two.cluster.wait(2 * HOUR)
    kept = _names(two.cluster, "Lease")
    two.leading.is_stuck = True
    two.first.compactor.request()
    two.first.controller.wake()
    two.cluster.wait(MINUTE)
    assert objects_of(two.cluster.store, "LedgerCheckpoint")
    assert _names(two.cluster, "Lease") == kept
    two.take_over()
    two.cluster.wait(MINUTE)
    assert _names(two.cluster, "Lease") == set()
    assert two.problems() == []


def test_a_batch_that_was_never_committed_is_swept_and_not_believed(two: Two) -> None:
    two.run("a")
    [head] = objects_of(two.cluster.store, "LedgerHead")
    seq = head["spec"]["seq"] + 1  # type: ignore[index,operator]
    wire = {
        "apiVersion": API_VERSION,
        "kind": "LedgerBatch",
        "metadata": {"name": f"{seq}-00000000"},
        "spec": {"seq": seq, "epoch": 1, "digest": "0" * 64, "batch": {"seq": seq}},
    }
    at_once(two.cluster.store.create(wire))
    two.run("b")
    two.take_over()
    two.cluster.wait(MINUTE)
    assert two.cluster.phase(two.second, "t/b") == "Completed"
    assert f"{seq}-00000000" not in _names(two.cluster, "LedgerBatch")


def _used(plane: Plane) -> object:
    """GPU-hours of every envelope."""
    answered = at_once(plane.questions.answer(ADMIN, "budgets", {}))
    return answered.found
