"""Planes on one store: one leads, loses its tenure, another goes on; nobody else says a word."""

from pathlib import Path

import pytest
from tests.questions.played import ADMIN

from leasehold.adapters.memory.store import MemoryStore
from leasehold.adapters.objects.admission import Admission
from leasehold.control.views.numbers import run_view
from leasehold.core.facts import Node
from leasehold.core.objects.node import Labels
from leasehold.core.objects.tenure import Holder
from leasehold.core.objects.wire import part
from leasehold.core.policy import Policy
from leasehold.core.units import HOUR, MINUTE, SECOND, Millis
from leasehold.ports.tenure import Tenure
from leasehold.shell.plane import Plane
from leasehold.shell.query import BadQuestion
from leasehold.shell.terms import Terms
from leasehold.sim.kernel import Kernel
from leasehold.sim.nodes import SimFleet
from leasehold.sim.scenario.ledger import at_once, ledger_problems, objects_of
from leasehold.sim.scenario.parse_actions import manifest

RUN = {"owner": "t:one", "resources": {"gpuType": "H", "totalGPUs": 8, "gpusPerPod": 8}}


class Cluster:
    def __init__(self, tmp_path: Path) -> None:
        self.kernel = Kernel(500_000 * HOUR)
        user, machines = self.kernel.process("user"), self.kernel.process("nodes")
        self.store = MemoryStore(user.tasks, user.clock, Admission())
        self.fleet = SimFleet(self.store, machines.clock, machines.tasks, labels=Labels())
        machines.tasks.spawn("fleet", self.fleet.run())
        for name in ("n0", "n1"):
            self.fleet.add_node(
                Node(name=name, flavor="H", region="r", cluster="c", fabric="a", gpus=8)
            )
        spec = {"owner": "t:one", "envelopes": [{"name": "e", "flavor": "H", "concurrency": 16}]}
        at_once(self.store.create(manifest("Budget", "t/t", spec)))
        self.kernel.settle()
        self._folder = tmp_path

    def plane(self, name: str) -> Plane:
        process = self.kernel.process(name)
        terms = Terms(policy=Policy(), lottery_key=b"k" * 32, is_shared=True, is_strict=True)
        folder = self._folder / name
        plane = Plane(self.store, process.clock, process.tasks, terms, archive=folder)
        plane.start()
        return plane

    def submit(self, key: str) -> None:
        at_once(self.store.create(manifest("Run", key, RUN)))

    def wait(self, span: Millis) -> None:
        until = self.kernel.now + span
        self.kernel.settle()
        while (due := self.kernel.next_timer()) is not None and due <= until:
            self.kernel.advance_to(due)
            self.kernel.settle()
        self.kernel.advance_to(until)
        self.kernel.settle()

    def epoch(self) -> object:
        [head] = objects_of(self.store, "LedgerHead")
        return part(head, "spec")["epoch"]

    def events(self) -> int:
        return len(objects_of(self.store, "Event"))

    def phase(self, plane: Plane, key: str) -> str:
        world = plane.world
        assert world is not None, "it leads"
        return run_view(world, world.uid_of[key], self.kernel.now).phase


def tenure(epoch: int) -> Tenure:
    holder = Holder(name=f"p{epoch}", nonce=str(epoch))
    return Tenure(key="main", holder=holder, epoch=epoch, version=1, since=0)


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path)


def test_who_does_not_lead_knows_and_writes_nothing(cluster: Cluster) -> None:
    standby = cluster.plane("standby")
    before = cluster.store.version
    cluster.submit("t/a")
    cluster.wait(20 * MINUTE)
    assert standby.world is None
    assert not standby.is_leading
    assert cluster.store.version == before + 1
    with pytest.raises(BadQuestion) as refused:
        at_once(standby.questions.answer(ADMIN, "runs", {}))
    assert refused.value.status == 503


def test_one_loses_it_and_another_goes_on(cluster: Cluster) -> None:
    first, second = cluster.plane("first"), cluster.plane("second")
    first.gained(tenure(3))
    cluster.submit("t/a")
    cluster.wait(MINUTE)
    assert (cluster.epoch(), cluster.phase(first, "t/a")) == (3, "Running")

    events = cluster.events()
    cluster.submit("t/b")
    cluster.wait(SECOND // 4)
    assert cluster.phase(first, "t/b") == "Running"
    first.lost("no renewal was answered")  # what it had to tell of that is not written yet
    assert first.world is None
    cluster.wait(MINUTE)
    assert cluster.events() == events
    second.gained(tenure(4))
    cluster.wait(MINUTE)
    assert (cluster.epoch(), cluster.phase(second, "t/b")) == (4, "Running")

    second.lost("stopped")
    first.gained(tenure(5))
    cluster.wait(MINUTE)
    assert cluster.phase(first, "t/a") == cluster.phase(first, "t/b") == "Running"
    assert ledger_problems(cluster.store) == []
    assert cluster.fleet.breaches == []


def test_who_is_deposed_by_the_head_says_so_once_and_stops(cluster: Cluster) -> None:
    first, second = cluster.plane("first"), cluster.plane("second")
    told: list[str] = []
    first.on_deposed(told.append)
    first.gained(tenure(1))
    cluster.wait(SECOND)
    second.gained(tenure(2))
    cluster.wait(SECOND)
    cluster.submit("t/a")
    cluster.wait(MINUTE)
    assert told == ["somebody else moved the ledger's head"]
    assert first.world is None
    assert cluster.phase(second, "t/a") == "Running"
    assert ledger_problems(cluster.store) == []


def test_who_is_unsure_decides_nothing_until_it_is_sure(cluster: Cluster) -> None:
    plane = cluster.plane("first")
    plane.gained(tenure(1))
    cluster.submit("t/a")
    cluster.wait(MINUTE)
    plane.unsure()
    before = cluster.store.version
    cluster.submit("t/b")
    cluster.wait(5 * SECOND)
    assert cluster.store.version == before + 1
    plane.sure()
    cluster.wait(MINUTE)
    assert cluster.phase(plane, "t/b") == "Running"
