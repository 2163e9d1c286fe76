"""How the agent registers its nodes, and what happens when a node is fenced or deleted."""

from pathlib import Path

from msgspec import structs
from tests.agent.harness import (
    NODE,
    Stage,
    eventually,
    is_alive,
    phase,
    pids_in,
    pod,
    stage,
)

from leasehold.adapters.agent.agent import LocalNode
from leasehold.adapters.agent.devices import Device, DeviceWatch
from leasehold.adapters.agent.limits import Limits
from leasehold.adapters.agent.nodes import Nodes
from leasehold.core.facts import Node
from leasehold.core.objects.node import FENCE, OUT_OF_SERVICE, Labels, node_from_wire
from leasehold.core.objects.pod import pod_from_wire
from leasehold.core.objects.wire import part
from leasehold.ports.store import Conflict, NotFound

OTHER = LocalNode("n2", "virtual", "here", "c1", "d2", gpus=8, rack="r7")


def test_nodes_are_registered_with_the_fields_placement_reads(ground: Path) -> None:
    async def play(machine: Stage) -> list[Node]:
        wires = (await machine.store.list("Node")).items
        return [node_from_wire(wire, labels=Labels()) for wire in wires]

    first, second = stage(ground, play, nodes=(NODE, OTHER))

    assert (first.name, first.flavor, first.domain) == ("n1", "virtual", "here/c1/d1")
    assert (first.gpus, first.ready, first.lacks) == (8, True, "")
    assert second.fabric == "d2"
    assert first.cpu_milli == second.cpu_milli > 0
    assert first.memory_bytes == second.memory_bytes > 0


def test_administrators_taint_and_cordon_survive_agent_restart(ground: Path) -> None:
    async def play(machine: Stage) -> Node:
        await _taint(machine, "n1", "maintenance", cordon=True)
        await machine.restart()
        return await _node(machine, "n1")

    node = stage(ground, play)

    assert node.cordoned
    assert [taint.key for taint in node.taints] == ["maintenance"]
    assert node.ready


def test_heartbeat_changes_only_the_object_version(ground: Path) -> None:
    async def play(machine: Stage) -> tuple[Node, Node]:
        before = await _node(machine, "n1")

        async def has_heartbeat() -> bool:
            return (await _node(machine, "n1")).version > before.version

        await eventually(has_heartbeat)
        return before, await _node(machine, "n1")

    before, after = stage(ground, play, limits=Limits(heartbeat_ms=50))

    assert structs.replace(after, version=before.version) == before


def test_fenced_node_loses_its_processes_and_returns_when_taint_is_removed(
    ground: Path,
) -> None:
    async def play(machine: Stage) -> None:
        work = ground / "work" / "team"
        for name in ("dead", "alive"):
            node = "n1" if name == "dead" else "n2"
            script = f"trap '' TERM; echo $$$$ > {name}; while :; do sleep 1; done"
            await machine.submit(name, script, node=node)
            await machine.running(name)
        [dead], [alive] = await pids_in(work / "dead"), await pids_in(work / "alive")
        await _taint(machine, "n1", OUT_OF_SERVICE)
        await eventually(lambda: _is_gone(dead))
        await eventually(lambda: _is_ready(machine, "n1", wanted=False))
        assert is_alive(alive)
        # A dead machine reports nothing; the controller learns of the end from the taint.
        assert phase(await machine.get("dead")) == "Running"
        await machine.store.create(pod("next", ["/bin/true"]))
        await machine.delete("dead", 30_000)
        await machine.gone("dead")
        assert phase(await machine.get("next")) == "Pending"
        await _taint(machine, "n1", None)
        await eventually(lambda: _is_ready(machine, "n1", wanted=True))
        assert phase(await machine.ended("next")) == "Succeeded"
        assert phase(await machine.get("alive")) == "Running"

    stage(ground, play, nodes=(NODE, OTHER))


def test_requested_fence_is_applied_when_node_empties_between_two_checks(
    ground: Path,
) -> None:
    """The last process may end between any two checks of the agent."""
    answers = iter([False, False])

    async def play(machine: Stage) -> Node:
        nodes = Nodes(
            machine.store, machine.clock, machine.tasks, nodes=[OTHER], labels=Labels(),
            agent="another", heartbeat_ms=60_000,
        )  # fmt: skip
        nodes.is_empty = lambda _: next(answers, True)
        await nodes.prepare()
        made = await _node(machine, "n2")
        await machine.clock.sleep(2)  # an equal heartbeat at the same time would write nothing
        machine.tasks.spawn("nodes", nodes.run())

        async def is_reported() -> bool:
            return (await _node(machine, "n2")).version > made.version

        async def is_fenced() -> bool:
            return bool((await _node(machine, "n2")).taints)

        await eventually(is_reported)  # from here on only the fence request causes a check
        await _ask_to_fence(machine, "n2")
        await eventually(is_fenced)
        return await _node(machine, "n2")

    assert [taint.key for taint in stage(ground, play).taints] == [OUT_OF_SERVICE]


def test_undeleted_pod_of_fenced_node_is_removed_when_node_returns(
    ground: Path,
) -> None:
    async def play(machine: Stage) -> int:
        await machine.submit("lost", "exec sleep 600")
        await machine.running("lost")
        await _taint(machine, "n1", OUT_OF_SERVICE)
        await eventually(lambda: _is_ready(machine, "n1", wanted=False))
        await machine.restart()  # the new agent still knows that the pod is lost
        await _taint(machine, "n1", None)
        await machine.gone("lost")
        return machine.agent.running

    assert stage(ground, play) == 0


def test_deleted_node_loses_its_processes_and_is_registered_again(ground: Path) -> None:
    async def play(machine: Stage) -> None:
        await machine.submit("there", "echo $$$$ > pid; exec sleep 600")
        [pid] = await pids_in(ground / "work" / "team" / "pid")
        uid = (await _node(machine, "n1")).uid
        await machine.store.delete("Node", "", "n1", uid=uid)

        async def is_new() -> bool:
            try:
                return (await _node(machine, "n1")).uid != uid
            except NotFound:
                return False

        await eventually(is_new)
        assert not is_alive(pid)
        await machine.gone("there")

    stage(ground, play)


def test_node_removed_from_configuration_stays_as_not_ready(ground: Path) -> None:
    async def play(machine: Stage) -> None:
        machine.nodes = (NODE,)
        await machine.restart()
        assert not (await _node(machine, "n2")).ready
        assert (await _node(machine, "n1")).ready

    stage(ground, play, nodes=(NODE, OTHER))


class _Driver(DeviceWatch):
    """A fake NVML: it reports which processes hold which device."""

    def __init__(self) -> None:
        super().__init__()
        self.held: dict[str, frozenset[int]] = {}

    def holders(self, uuid: str) -> frozenset[int]:
        return self.held.get(uuid, frozenset())


DEVICES = tuple(Device(i, f"GPU-{i}", "H1", 1 << 30) for i in range(4))
REAL = LocalNode("n1", "h1", "here", "c1", "d1", gpus=4, devices=DEVICES)
QUICK = Limits(retention_ms=0, devices_ms=20, devices_patience_ms=30_000)


def test_foreign_processes_on_gpus_appear_as_pod_of_another_scheduler(ground: Path) -> None:
    driver = _Driver()

    async def play(machine: Stage) -> None:
        driver.held = {"GPU-1": frozenset({1}), "GPU-3": frozenset({1})}

        async def held(count: int) -> bool:
            pods = [pod_from_wire(wire) for wire in (await machine.store.list("Pod")).items]
            return [each.gpus for each in pods if each.namespace == "elsewhere"] == (
                [count] if count else []
            )

        await eventually(lambda: held(2))
        await machine.store.create(pod("clash", ["/bin/true"], slots="1"))
        rejected = pod_from_wire(await machine.ended("clash"))
        assert rejected.reason == "Rejected"
        driver.held = {}
        await eventually(lambda: held(0))

    stage(ground, play, nodes=(REAL,), limits=QUICK, devices=driver)


def test_own_gpu_process_is_not_foreign_and_delays_end_until_gpu_is_free(
    ground: Path,
) -> None:
    driver = _Driver()

    async def play(machine: Stage) -> None:
        work = ground / "work" / "team"
        script = "echo $$$$ > pid; while [ ! -e go ]; do sleep 0.02; done"
        await machine.store.create(pod("user", ["/bin/sh", "-c", script], slots="2"))
        await machine.running("user")
        [pid] = await pids_in(work / "pid")
        driver.held = {"GPU-2": frozenset({pid})}
        await machine.clock.sleep(200)  # several checks
        names = {pod_from_wire(wire).name for wire in (await machine.store.list("Pod")).items}
        assert names == {"user"}
        (work / "go").touch()
        await eventually(lambda: _is_gone(pid))
        await machine.clock.sleep(200)
        assert phase(await machine.get("user")) == "Running"  # the driver still reports the process
        driver.held = {}
        assert phase(await machine.ended("user")) == "Succeeded"

    stage(ground, play, nodes=(REAL,), limits=QUICK, devices=driver)


async def _node(machine: Stage, name: str) -> Node:
    return node_from_wire(await machine.store.get("Node", "", name), labels=Labels())


async def _is_ready(machine: Stage, name: str, *, wanted: bool) -> bool:
    return (await _node(machine, name)).ready is wanted


async def _is_gone(pid: int) -> bool:
    return not is_alive(pid)


async def _ask_to_fence(machine: Stage, name: str) -> None:
    wire = await machine.store.get("Node", "", name)
    metadata = part(wire, "metadata")
    annotations = {**part(metadata, "annotations"), FENCE: "asked"}
    await machine.store.update({**wire, "metadata": {**metadata, "annotations": annotations}})


async def _taint(machine: Stage, name: str, key: str | None, *, cordon: bool = False) -> None:
    while True:
        wire = await machine.store.get("Node", "", name)
        taints = [] if key is None else [{"key": key, "value": "", "effect": "NoExecute"}]
        spec = {**part(wire, "spec"), "taints": taints, "unschedulable": cordon}
        try:
            await machine.store.update({**wire, "spec": spec})
            return
        except Conflict:
            continue
