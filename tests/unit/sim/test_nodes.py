"""Simulated kubelets: what happens to a Pod on a machine that lives, is silent, or dies."""

from collections.abc import Awaitable, Callable, Coroutine
from typing import TypeVar

import pytest

from leasehold.adapters.memory.store import MemoryStore
from leasehold.core.facts import Node, Pod, PodPhase
from leasehold.core.objects.node import Labels, node_from_wire
from leasehold.core.objects.pod import (
    ATTEMPT,
    GROUP_INDEX,
    POD_INDEX,
    RUN_UID,
    pod_from_wire,
    pod_to_wire,
    without_node,
)
from leasehold.core.units import HOUR, MINUTE, SECOND
from leasehold.ports.runtime import Clock
from leasehold.ports.store import NotFound, Store
from leasehold.sim.faulty import Faults, FaultyStore
from leasehold.sim.kernel import Kernel
from leasehold.sim.machines import NodeIs, Work
from leasehold.sim.nodes import OPENED, SimFleet
from leasehold.sim.store_wrapper import READS, StoreAround

START = 1_767_225_600_000
T = TypeVar("T")


class SlowWrites(StoreAround):
    def __init__(self, store: Store, clock: Clock) -> None:
        super().__init__(store)
        self._clock = clock

    async def _call(self, verb: str, kind: str, call: Callable[[], Awaitable[T]]) -> T:  # noqa: ARG002
        if verb not in READS:
            await self._clock.sleep(5 * SECOND)
        return await call()


class Site:
    """A kernel, a store and a fleet of two nodes of 8 GPUs."""

    def __init__(
        self, faults: Faults | None = None, seed: int | None = None, *, slow: bool = False
    ) -> None:
        self.kernel = Kernel(START, seed)
        self.user = self.kernel.process("user")
        nodes = self.kernel.process("nodes")
        self.store = MemoryStore(self.user.tasks, self.user.clock)
        store: Store = FaultyStore(self.store, nodes, faults) if faults else self.store
        if slow:
            store = SlowWrites(store, nodes.clock)
        self.fleet = SimFleet(store, nodes.clock, nodes.tasks)
        for name in ("a-00", "a-01"):
            self.fleet.add_node(
                Node(name=name, flavor="H", region="r", cluster="c", fabric="a", gpus=8)
            )
        nodes.tasks.spawn("fleet", self.fleet.run())
        self.at(0)

    def at(self, ms: int) -> None:
        self.kernel.advance_to(START + ms)

    def do(self, coroutine: Coroutine[object, object, T]) -> T:
        result = self.kernel.complete(coroutine, process=self.user)
        self.kernel.settle()
        return result

    def create(
        self,
        name: str,
        *,
        node: str = "a-00",
        attempt: int = 1,
        opened: str = "Start",
        gpus: int = 8,
        run: str = "run-1",
        bound: bool = True,
    ) -> None:
        group, index = (int(part[1:]) for part in name.split("-")[-2:])
        labels = {
            RUN_UID: run,
            GROUP_INDEX: str(group),
            POD_INDEX: str(index),
            ATTEMPT: str(attempt),
            OPENED: opened,
        }
        pod = pod_to_wire(
            b"{}", name=name, namespace="t", node=node, gpus=gpus, labels=labels, env={}
        )
        self.do(self.store.create(pod if bound else without_node(pod)))

    def delete(self, name: str, grace_ms: int = 30_000) -> None:
        self.do(self.store.delete("Pod", "t", name, uid=None, grace_ms=grace_ms))

    def pod(self, name: str) -> Pod:
        return pod_from_wire(self.do(self.store.get("Pod", "t", name)))

    def is_gone(self, name: str) -> bool:
        try:
            self.pod(name)
        except NotFound:
            return True
        return False

    def node(self, name: str) -> Node:
        return node_from_wire(self.do(self.store.get("Node", "", name)), labels=Labels())


def ended(pod: Pod) -> tuple[PodPhase, int | None, int | None]:
    at = None if pod.finished_at is None else pod.finished_at - START
    return pod.phase, pod.exit_code, at


RANK = ("run-1", 0, 0)


def test_unbound_pod_runs_only_once_it_is_bound() -> None:
    site = Site()
    site.create("x-1-g0-p0", bound=False)
    site.at(MINUTE)
    made = site.pod("x-1-g0-p0")
    assert (made.node, made.phase) == ("a-00", PodPhase.PENDING)
    site.do(site.store.bind("t", "x-1-g0-p0", "a-00", uid=made.uid))
    assert site.pod("x-1-g0-p0").phase is PodPhase.RUNNING


def test_new_pod_runs_at_once_and_ends_when_its_work_is_done() -> None:
    site = Site()
    site.fleet.assign("run-1", (Work(lasts=HOUR),), per_group=False)
    site.create("r-1-g0-p0")
    assert site.pod("r-1-g0-p0").phase is PodPhase.RUNNING
    site.at(HOUR - 1)
    assert site.pod("r-1-g0-p0").phase is PodPhase.RUNNING
    site.at(HOUR)
    assert ended(site.pod("r-1-g0-p0")) == (PodPhase.SUCCEEDED, 0, HOUR)


def test_end_of_pod_is_reported_though_writes_are_slow_and_others_start() -> None:
    """Once, its end was noticed when the fourth pod started, and never reported.

    The pod seemed to run for ever, even after it was deleted.
    """
    site = Site(slow=True)
    site.at(MINUTE)  # the nodes exist by now
    site.fleet.assign("run-1", (Work(lasts=12 * SECOND),), per_group=False)
    for after, run in enumerate(("run-1", "run-2", "run-3", "run-4")):
        site.at(MINUTE + after * 9 * SECOND // 2)
        site.create(f"r-{after}-g0-p0", gpus=2, run=run)
    site.at(2 * MINUTE)
    assert ended(site.pod("r-0-g0-p0")) == (PodPhase.SUCCEEDED, 0, MINUTE + 12 * SECOND)


def test_work_lasts_from_the_start_of_the_attempt_and_not_of_the_pod() -> None:
    site = Site()
    site.fleet.assign("run-1", (Work(lasts=HOUR, exit_code=7), Work()), per_group=False)
    site.create("r-1-g0-p0")
    site.at(MINUTE)
    site.create("r-2-g0-p1", node="a-01", opened="Swap")
    site.create("r-3-g1-p0", node="a-01", attempt=2, gpus=0)
    site.at(2 * HOUR)
    assert ended(site.pod("r-2-g0-p1")) == (PodPhase.FAILED, 7, HOUR)
    assert site.pod("r-3-g1-p0").phase is PodPhase.RUNNING
    site.delete("r-2-g0-p1")
    site.create("r-2-g0-p1", node="a-01", opened="Swap")  # restarted in place, too late
    assert ended(site.pod("r-2-g0-p1")) == (PodPhase.FAILED, 7, 2 * HOUR)


def test_separate_groups_work_from_their_own_start() -> None:
    site = Site()
    site.fleet.assign("run-1", (Work(lasts=HOUR),), per_group=True)
    site.create("r-1-g0-p0")
    site.at(MINUTE)
    site.create("r-2-g1-p0", node="a-01")
    site.at(HOUR + MINUTE)
    assert ended(site.pod("r-1-g0-p0"))[2] == HOUR
    assert ended(site.pod("r-2-g1-p0"))[2] == HOUR + MINUTE


# stops, grace, lasts -> when the pod is gone after a signal at one minute
@pytest.mark.parametrize(
    ("stops", "grace", "lasts", "gone"),
    [
        (0, 30 * SECOND, None, MINUTE),
        (10 * SECOND, 30 * SECOND, None, MINUTE + 10 * SECOND),
        (HOUR, 30 * SECOND, None, MINUTE + 30 * SECOND),
        (HOUR, 30 * SECOND, MINUTE + 5 * SECOND, MINUTE + 5 * SECOND),
    ],
)
def test_deleted_pod_is_gone_when_it_stops_or_is_killed(
    stops: int, grace: int, lasts: int | None, gone: int
) -> None:
    site = Site()
    site.fleet.assign("run-1", (Work(lasts=lasts, stops=stops),), per_group=False)
    site.create("r-1-g0-p0")
    site.at(MINUTE)
    site.delete("r-1-g0-p0", grace)
    if gone > MINUTE:
        site.at(gone - 1)
        assert site.pod("r-1-g0-p0").phase is PodPhase.RUNNING
    watch = site.store.watch("Pod", 0)
    site.at(gone)
    assert site.is_gone("r-1-g0-p0")
    last = site.do(_last(watch.next))
    code = 0 if lasts else 143
    assert ended(last) == (PodPhase.FAILED if code else PodPhase.SUCCEEDED, code, gone)


async def _last(following: Callable[[], Coroutine[object, object, object]]) -> Pod:
    while True:
        event = await following()
        if getattr(event, "type", "") == "DELETED":
            return pod_from_wire(getattr(event, "object", None))


def test_stuck_pod_survives_the_kill_and_ends_when_it_is_freed() -> None:
    site = Site()
    site.create("r-1-g0-p0")
    assert site.fleet.stick_pod(RANK, stuck=True)
    site.delete("r-1-g0-p0", 1000)
    site.at(HOUR)
    assert site.pod("r-1-g0-p0").deleting
    assert site.fleet.stick_pod(RANK, stuck=False)
    site.kernel.settle()
    assert site.is_gone("r-1-g0-p0")
    assert not site.fleet.stick_pod(RANK, stuck=True)


def test_second_deletion_with_less_grace_shortens_the_time() -> None:
    site = Site()
    site.fleet.assign("run-1", (Work(stops=HOUR),), per_group=False)
    site.create("r-1-g0-p0")
    site.delete("r-1-g0-p0", 60 * SECOND)
    site.at(10 * SECOND)
    site.delete("r-1-g0-p0", 5 * SECOND)
    site.at(15 * SECOND - 1)
    assert not site.is_gone("r-1-g0-p0")
    site.at(15 * SECOND)
    assert site.is_gone("r-1-g0-p0")


def test_exit_pod_ends_a_pod_with_the_given_code_only_once() -> None:
    site = Site()
    site.create("r-1-g0-p0")
    site.at(MINUTE)
    assert site.fleet.exit_pod(RANK, 3)
    site.kernel.settle()
    assert ended(site.pod("r-1-g0-p0")) == (PodPhase.FAILED, 3, MINUTE)
    assert not site.fleet.exit_pod(RANK, 3)


def test_reject_starts_rejects_the_first_pod_of_each_of_the_next_two_starts() -> None:
    site = Site()
    site.fleet.reject_starts(2)
    site.create("r-1-g0-p0")
    site.create("r-1-g0-p1", node="a-01")
    site.create("r-2-g1-p0", opened="Grow", run="run-2")
    site.delete("r-2-g1-p0")
    site.create("r-3-g2-p0", opened="Start", run="run-2")
    site.create("r-4-g0-p0", opened="Start", run="run-3")
    rejected = site.pod("r-1-g0-p0")
    assert (rejected.phase, rejected.reason, rejected.exit_code) == (
        PodPhase.FAILED, "Rejected", None,
    )  # fmt: skip
    assert not rejected.is_bound
    assert site.pod("r-1-g0-p1").phase is PodPhase.RUNNING
    assert site.pod("r-3-g2-p0").reason == "Rejected"
    assert site.pod("r-4-g0-p0").phase is PodPhase.RUNNING


def test_pod_end_on_a_silent_node_is_reported_later_with_its_time() -> None:
    site = Site()
    site.fleet.assign("run-1", (Work(lasts=HOUR),), per_group=False)
    site.create("r-1-g0-p0")
    site.fleet.set_node("a-00", NodeIs.SILENT)
    site.kernel.settle()
    assert not site.node("a-00").ready
    assert site.node("a-00").not_ready_since == START
    site.at(2 * HOUR)
    assert site.pod("r-1-g0-p0").phase is PodPhase.RUNNING
    site.fleet.set_node("a-00", NodeIs.READY)
    site.kernel.settle()
    assert ended(site.pod("r-1-g0-p0")) == (PodPhase.SUCCEEDED, 0, HOUR)
    assert site.node("a-00").ready


def test_deletion_reaches_a_silent_node_when_the_node_is_back() -> None:
    site = Site()
    site.fleet.assign("run-1", (Work(stops=10 * SECOND),), per_group=False)
    site.create("r-1-g0-p0")
    site.fleet.set_node("a-00", NodeIs.SILENT)
    site.delete("r-1-g0-p0")
    site.at(HOUR)
    assert site.pod("r-1-g0-p0").phase is PodPhase.RUNNING
    site.fleet.set_node("a-00", NodeIs.READY)
    site.at(HOUR + 10 * SECOND - 1)
    assert not site.is_gone("r-1-g0-p0")
    site.at(HOUR + 10 * SECOND)
    assert site.is_gone("r-1-g0-p0")


def test_dead_node_is_fenced_and_its_pods_never_report() -> None:
    site = Site()
    site.fleet.assign("run-1", (Work(lasts=HOUR),), per_group=False)
    site.create("r-1-g0-p0")
    site.fleet.set_node("a-00", NodeIs.DEAD)
    site.at(2 * HOUR)
    node = site.node("a-00")
    assert node.fenced
    assert not node.ready
    assert site.pod("r-1-g0-p0").phase is PodPhase.RUNNING
    site.fleet.set_node("a-00", NodeIs.READY)
    site.kernel.settle()
    assert site.is_gone("r-1-g0-p0")
    assert (site.node("a-00").fenced, site.node("a-00").ready) == (False, True)


def test_deleted_pod_of_a_dead_node_is_removed() -> None:
    site = Site()
    site.create("r-1-g0-p0")
    site.fleet.set_node("a-00", NodeIs.DEAD)
    site.delete("r-1-g0-p0")
    assert site.is_gone("r-1-g0-p0")


def test_deleted_node_removes_its_pods_and_may_return_with_another_uid() -> None:
    site = Site()
    site.create("r-1-g0-p0")
    uid = site.node("a-00").uid
    site.fleet.set_foreign("a-00", 2)
    site.fleet.delete_node("a-00")
    site.kernel.settle()
    assert site.is_gone("r-1-g0-p0")
    assert site.do(site.store.list("Pod")).items == []
    with pytest.raises(NotFound):
        site.node("a-00")
    site.create("r-2-g0-p0")  # created by a client that learned late of the deletion
    assert site.is_gone("r-2-g0-p0")
    site.fleet.set_node("a-00", NodeIs.READY)
    site.kernel.settle()
    assert site.node("a-00").ready
    assert site.node("a-00").uid != uid


def test_cordon_and_uncordon_affect_no_pod() -> None:
    site = Site()
    site.create("r-1-g0-p0")
    for state, cordoned in ((NodeIs.CORDONED, True), (NodeIs.UNCORDONED, False)):
        site.fleet.set_node("a-00", state)
        site.kernel.settle()
        assert site.node("a-00").cordoned is cordoned
        assert site.node("a-00").ready
    assert site.pod("r-1-g0-p0").phase is PodPhase.RUNNING


def test_foreign_pods_use_gpus_until_they_are_removed() -> None:
    site = Site()
    for gpus in (2, 5):
        site.fleet.set_foreign("a-01", gpus)
        site.kernel.settle()
        pods = [pod_from_wire(wire) for wire in site.do(site.store.list("Pod")).items]
        assert [(pod.key, pod.node, pod.gpus, pod.phase) for pod in pods] == [
            ("elsewhere/foreign-a-01", "a-01", gpus, PodPhase.RUNNING)
        ]
    site.fleet.set_foreign("a-01", 0)
    site.kernel.settle()
    assert site.do(site.store.list("Pod")).items == []


def test_rank_running_twice_and_too_many_gpus_are_breaches() -> None:
    site = Site()
    site.create("r-1-g0-p0", gpus=4)
    assert site.fleet.breaches == []
    site.create("r-2-g0-p0", gpus=8)
    assert len(site.fleet.breaches) == 2


def test_forced_deletion_ends_the_pod_at_once_unless_its_node_is_silent() -> None:
    site = Site()
    site.create("r-1-g0-p0")
    site.delete("r-1-g0-p0", 0)
    site.create("r-2-g0-p0")
    assert site.fleet.breaches == []
    site.fleet.set_node("a-00", NodeIs.SILENT)
    site.delete("r-2-g0-p0", 0)
    site.create("r-3-g0-p0", node="a-01")
    assert len(site.fleet.breaches) == 1


@pytest.mark.parametrize("seed", range(10))
def test_all_changes_are_reported_in_the_end_despite_faults(seed: int) -> None:
    rates = dict.fromkeys(
        ("refuse", "lose-request", "lose-answer", "conflict", "read-refuse", "slow", "watch-lag",
         "watch-repeat", "watch-break"), 0.2,
    )  # fmt: skip
    faults = Faults(seed, rates)
    site = Site(faults, seed)
    site.at(MINUTE)
    site.fleet.assign("run-1", (Work(lasts=HOUR),), per_group=False)
    for index in range(4):
        site.create(f"r-1-g0-p{index}", node=f"a-0{index % 2}", gpus=4)
    site.at(30 * MINUTE)
    site.delete("r-1-g0-p0")
    site.fleet.set_foreign("a-00", 1)
    site.fleet.set_node("a-01", NodeIs.CORDONED)
    site.at(2 * HOUR)
    assert site.is_gone("r-1-g0-p0")
    for index in (1, 2, 3):
        phase, code, at = ended(site.pod(f"r-1-g0-p{index}"))
        assert (phase, code) == (PodPhase.SUCCEEDED, 0)
        assert at is not None
        assert MINUTE + HOUR <= at < MINUTE + HOUR + 30 * SECOND
    assert site.node("a-01").cordoned
    assert site.fleet.breaches == []
