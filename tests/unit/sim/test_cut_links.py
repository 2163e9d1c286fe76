"""Nodes whose own link is cut, nodes whose GPUs break, and what the store shows of them."""

import pytest
from tests.unit.sim.test_nodes import START, Site, ended

from leasehold.adapters.memory.store import MemoryStore
from leasehold.core.facts import Node, PodPhase
from leasehold.core.units import HOUR, MINUTE, SECOND
from leasehold.ports.store import Store
from leasehold.sim.kernel import Kernel
from leasehold.sim.machines import NodeIs, Work
from leasehold.sim.network import Network, NetworkedStore
from leasehold.sim.nodes import MISSED_AFTER, SimFleet


class LinkedSite(Site):
    """A `Site` of two nodes of 8 GPUs, with a link for each node."""

    def __init__(self, *, fence: int | None = None) -> None:
        self.kernel = Kernel(START)
        self.user = self.kernel.process("user")
        nodes = self.kernel.process("nodes")
        self.store = MemoryStore(self.user.tasks, self.user.clock)
        self.network = Network(self.kernel, 1, {})

        def link(name: str) -> Store:
            return NetworkedStore(self.store, nodes, self.network, name)

        self.fleet = SimFleet(
            link("nodes"), nodes.clock, nodes.tasks, links=link, fences={"*": fence}
        )
        for name in ("a-00", "a-01"):
            self.fleet.add_node(
                Node(name=name, flavor="H", region="r", cluster="c", fabric="a", gpus=8)
            )
        nodes.tasks.spawn("fleet", self.fleet.run())
        self.at(0)

    def cut(self, name: str, *, requests: bool = True, answers: bool = True) -> None:
        self.network.cut(name, requests=requests, answers=answers)
        self.fleet.cut_link(name, deaf=answers, mute=requests)
        self.kernel.settle()

    def heal(self, name: str) -> None:
        self.network.heal(name)
        self.fleet.heal_link(name)
        self.kernel.settle()


def test_disconnected_node_does_not_affect_other_nodes() -> None:
    site = LinkedSite()
    site.fleet.assign("run-1", (Work(lasts=MINUTE),), per_group=False)
    for index in range(2):
        site.create(f"r-1-g0-p{index}", node=f"a-0{index}")
    site.cut("a-00")
    site.at(2 * MINUTE)
    assert site.pod("r-1-g0-p0").phase is PodPhase.RUNNING
    assert ended(site.pod("r-1-g0-p1")) == (PodPhase.SUCCEEDED, 0, MINUTE)
    site.heal("a-00")
    site.at(3 * MINUTE)
    assert ended(site.pod("r-1-g0-p0")) == (PodPhase.SUCCEEDED, 0, MINUTE)


@pytest.mark.parametrize(("requests", "ready"), [(True, False), (False, True)])
def test_mute_node_becomes_not_ready_and_deaf_node_stays_ready(requests: bool, ready: bool) -> None:
    site = LinkedSite()
    site.cut("a-00", requests=requests)
    site.at(MISSED_AFTER - 1)
    assert site.node("a-00").ready
    site.at(MISSED_AFTER)
    assert site.node("a-00").ready is ready
    assert site.fleet.effects["node missed"] == (not ready)
    site.heal("a-00")
    assert site.node("a-00").ready


def test_deaf_node_starts_and_stops_nothing_until_it_is_reconnected() -> None:
    site = LinkedSite()
    site.create("r-1-g0-p0", gpus=4)
    site.cut("a-00", requests=False)
    site.create("r-1-g0-p1", gpus=4)
    site.delete("r-1-g0-p0", 0)
    site.create("r-2-g0-p2", gpus=4)
    site.delete("r-2-g0-p2", 1)
    site.at(MINUTE)
    assert site.pod("r-1-g0-p1").phase is PodPhase.PENDING
    assert not site.is_gone("r-2-g0-p2")
    assert site.fleet.busy_nodes() == ["a-00"]  # the pod that was deleted by force still runs
    site.heal("a-00")
    assert site.pod("r-1-g0-p1").phase is PodPhase.RUNNING
    assert site.is_gone("r-2-g0-p2")
    assert site.fleet.breaches == []


def test_mute_node_starts_pods_and_reports_them_later() -> None:
    site = LinkedSite()
    site.cut("a-00", answers=False)
    site.create("r-1-g0-p0")
    site.at(30 * SECOND)
    assert site.pod("r-1-g0-p0").phase is PodPhase.PENDING
    assert site.fleet.busy_nodes() == ["a-00"]
    site.heal("a-00")
    site.at(HOUR)
    assert site.pod("r-1-g0-p0").phase is PodPhase.RUNNING


def test_disconnected_node_fences_itself_in_time() -> None:
    site = LinkedSite(fence=20 * SECOND)
    site.create("r-1-g0-p0")
    site.cut("a-00")
    site.at(19 * SECOND)
    assert site.fleet.busy_nodes() == ["a-00"]
    site.at(20 * SECOND)
    assert site.fleet.busy_nodes() == []
    site.heal("a-00")
    assert site.is_gone("r-1-g0-p0")


def test_node_that_died_while_disconnected_stays_dead_once_reconnected() -> None:
    site = LinkedSite()
    site.cut("a-00")
    site.fleet.set_node("a-00", NodeIs.DEAD)
    site.heal("a-00")
    site.at(MINUTE)
    assert site.node("a-00").fenced
    assert not site.node("a-00").ready


def test_broken_and_repaired_gpus_change_the_nodes_gpu_count() -> None:
    site = Site()
    for left in (7, 0, 8):
        site.fleet.set_gpus("a-00", left)
        site.kernel.settle()
        assert site.node("a-00").gpus == left
    assert site.fleet.effects["gpu-break"] == 8
    assert site.fleet.effects["gpu-break in use"] == 0


def test_pods_on_broken_gpus_end_only_if_an_exit_code_is_given() -> None:
    site = Site()
    for index in range(4):
        site.create(f"r-1-g0-p{index}", gpus=2)
    site.fleet.set_gpus("a-00", 5, 7)
    site.kernel.settle()
    ends = [site.pod(f"r-1-g0-p{index}").exit_code for index in range(4)]
    assert ends == [None, None, 7, 7]  # three GPUs broke, and both pods on them end whole
    site.fleet.set_gpus("a-00", 1)
    site.kernel.settle()
    assert site.pod("r-1-g0-p0").phase is PodPhase.RUNNING
    assert site.fleet.effects["gpu-break in use"] == 2


def test_pod_without_enough_whole_gpus_is_refused_without_a_breach() -> None:
    site = Site()
    site.fleet.set_gpus("a-00", 7)
    site.create("r-1-g0-p0")
    refused = site.pod("r-1-g0-p0")
    assert (refused.phase, refused.exit_code) == (PodPhase.FAILED, None)
    assert site.fleet.breaches == []
    site.create("r-1-g0-p1", gpus=4)
    site.create("r-1-g0-p2", gpus=9)
    assert len(site.fleet.breaches) == 1
