"""The checks that a leader keeps up with changes: what they accept, and what they report."""

from collections.abc import Sequence

import pytest
from msgspec.structs import replace
from tests.unit.records import a_lease

from leasehold.adapters.memory.store import MemoryStore
from leasehold.control.turn import Turn
from leasehold.core.facts import Cause, Closed, Closure, ClosureReason, Node, Pod, PodPhase
from leasehold.core.names import Wire
from leasehold.core.objects.lease import lease_status, lease_to_wire
from leasehold.core.objects.pod import pod_from_wire
from leasehold.core.policy import Policy
from leasehold.core.world.world import World
from leasehold.ports.store import Answers, Delete, Store, Unavailable, Write
from leasehold.sim.faults.check_progress import ProgressCheck
from leasehold.sim.kernel import Kernel
from leasehold.sim.scenario.ledger import at_once

POD: Wire = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p", "namespace": "t"},
    "spec": {"containers": [{"name": "main"}]},
}
NODE = Node(name="n", flavor="H", region="r", cluster="c", fabric="a", gpus=8)


class Refusing(MemoryStore):
    async def write_all(self, writes: Sequence[Write]) -> Answers:
        return [Unavailable() for _ in writes]


class Watched:
    """A process called c1, and the problems found with it."""

    def __init__(self, kind: type[MemoryStore] = MemoryStore) -> None:
        self.wrong: list[str] = []
        process = Kernel(0).process("c1")
        self.checks = ProgressCheck(self.wrong.append)
        self.inner = kind(process.tasks, process.clock, on_change=self.checks.on_change)
        self.store: Store = self.checks.around(self.inner, "c1")
        self.world = World(Policy())
        self.world.put_node(NODE)

    def turn(self) -> list[str]:
        self.checks.turned("c1", Turn(self.world, now=0, key=b"", time_trusted=True))
        found, self.wrong[:] = list(self.wrong), []
        return [words.partition(":")[0] for words in found]


def unwanted(**said: object) -> Pod:
    return Pod(namespace="t", name="p", node="n", gpus=1, uid="u", run_uid="r", **said)  # type: ignore[arg-type]


REMOVE = Delete("Pod", "t", "p", "u", 30_000, None)


def test_unwanted_pod_must_be_deleted_by_the_next_turn() -> None:
    watched = Watched()
    watched.world.put_pod(unwanted())
    assert watched.turn() == []
    assert watched.turn() == ["UnwantedPodsGo"]


@pytest.mark.parametrize(
    "said", [{"deleting": True}, {"phase": PodPhase.SUCCEEDED}, {"phase": PodPhase.FAILED}]
)
def test_unwanted_pod_that_is_deleted_or_ended_needs_no_deletion(said: dict[str, object]) -> None:
    watched = Watched()
    watched.world.put_pod(unwanted(**said))
    assert [watched.turn(), watched.turn()] == [[], []]


@pytest.mark.parametrize(("grace", "found"), [(0, []), (30_000, ["UnwantedPodsGo"])])
def test_unwanted_pod_on_a_deleted_node_must_be_deleted_without_grace(
    grace: int, found: list[str]
) -> None:
    watched = Watched()
    watched.world.put_pod(unwanted(deleting=True))
    watched.world.drop_node("n")
    assert watched.turn() == []
    at_once(watched.store.write_all([Delete("Pod", "t", "p", "u", grace, None)]))
    assert watched.turn() == found


def test_leader_with_a_refused_deletion_must_retry_in_every_turn() -> None:
    watched = Watched(Refusing)
    watched.world.put_pod(unwanted())
    assert watched.turn() == []
    for _ in range(3):
        at_once(watched.store.write_all([REMOVE]))
        assert watched.turn() == []
    assert watched.turn() == ["UnwantedPodsGo"]


def test_leader_with_an_answered_deletion_may_wait() -> None:
    watched = Watched()
    watched.world.put_pod(unwanted())
    at_once(watched.store.write_all([REMOVE]))  # there is no such pod: the deletion has succeeded
    assert [watched.turn(), watched.turn(), watched.turn()] == [[], [], []]


def test_leader_must_know_a_pod_that_it_was_shown() -> None:
    watched = Watched()
    made = at_once(watched.inner.create(POD))
    assert [watched.turn(), watched.turn()] == [[], []]  # no answer has shown it to the leader
    at_once(watched.store.list("Pod"))
    assert watched.turn() == []  # it was shown after this turn's news had been read
    assert watched.turn() == ["KnowsWhatIsThere"]
    watched.world.put_pod(pod_from_wire(made))
    assert watched.turn() == []


def test_leader_must_forget_a_pod_that_it_was_shown_to_be_gone() -> None:
    watched = Watched()
    watched.world.put_pod(pod_from_wire(at_once(watched.inner.create(POD))))
    at_once(watched.inner.delete("Pod", "t", "p", uid=None, grace_ms=0))
    assert [watched.turn(), watched.turn()] == [[], []]
    at_once(watched.store.list("Pod"))
    assert watched.turn() == []
    assert watched.turn() == ["KnowsWhatIsThere"]
    watched.world.drop_pod("t/p")
    assert watched.turn() == []


def test_checks_of_a_leader_start_again_when_it_gets_a_new_world() -> None:
    watched = Watched()
    watched.world.put_pod(unwanted())
    watched.turn()
    watched.world = World(Policy())
    watched.world.put_node(NODE)
    watched.world.put_pod(unwanted())
    assert watched.turn() == []


@pytest.mark.parametrize(("is_told_to_go", "found"), [(True, []), (False, ["LossesAreReal"])])
def test_lease_closed_for_deletion_needs_a_pod_that_was_deleted(
    is_told_to_go: bool, found: list[str]
) -> None:
    watched = Watched()
    lease = a_lease(1, 0)
    place = {"name": lease.pod, "namespace": lease.namespace}
    at_once(watched.inner.create({**POD, "metadata": place}))
    if is_told_to_go:
        at_once(watched.inner.delete("Pod", lease.namespace, lease.pod, uid=None, grace_ms=30_000))
    why = ClosureReason(reason=Closed.FAIL)
    closure = Closure(why=why, at=lease.start, batch=2, cause=Cause.DELETED)
    at_once(watched.inner.create(lease_to_wire(lease)))
    status = lease_status(replace(lease, closed=closure))
    at_once(watched.inner.patch_status("Lease", "", lease.name, status, version=None))
    assert watched.turn() == found


@pytest.mark.parametrize(("is_dead", "found"), [(True, ["DeadHoldNothing"]), (False, [])])
def test_lease_on_a_dead_node_must_be_closed_by_the_next_turn(
    is_dead: bool, found: list[str]
) -> None:
    watched = Watched()
    watched.world.fold_open(a_lease(1, 0, node="n"))
    assert [watched.turn(), watched.turn()] == [[], []]
    watched.world.put_node(replace(NODE, fenced=is_dead))
    assert [watched.turn(), watched.turn()] == [[], found]
