"""An error with one pod or node is reported on that object, and all others continue."""

import asyncio
import json
import os
from pathlib import Path

import pytest
from tests.agent.harness import Stage, eventually, is_alive, phase, pids_in, pod, stage, uid_of

from leasehold.adapters.agent.limits import Limits
from leasehold.adapters.agent.requests import Requests
from leasehold.adapters.containment import About, Containment, kept_up
from leasehold.adapters.memory.store import MemoryStore
from leasehold.core.facts import Pod
from leasehold.core.names import Wire
from leasehold.core.objects.node import OUT_OF_SERVICE
from leasehold.core.objects.wire import part, text_at

QUICK = Limits(retention_ms=0, records_ms=50)
SLEEP = "echo $$$$ > pid; exec sleep 600"


def message(wire: Wire) -> str:
    return text_at(part(wire, "status"), "message")


def test_pod_that_raises_unexpected_error_fails_alone(
    ground: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sound = Requests.make

    def make(self: Requests, pod: Pod, wire: Wire, node: object) -> object:
        if pod.name == "odd":
            raise KeyError("nobody thought of this")
        return sound(self, pod, wire, node)  # type: ignore[arg-type]

    monkeypatch.setattr(Requests, "make", make)
    told: list[tuple[About, str]] = []

    async def play(machine: Stage) -> None:
        odd = await machine.submit("odd", "true")
        await machine.submit("even", "exit 3")
        assert phase(await machine.ended("even")) == "Failed"
        ended = await machine.ended("odd")
        assert phase(ended) == "Failed"
        assert "KeyError: 'nobody thought of this'" in message(ended)
        assert [about for about, _ in told] == [About("Pod", "odd", "team", uid_of(odd))]
        # The failed pod can be deleted, and a new agent starts while it exists.
        await machine.submit("odd2", "true")
        await machine.restart()
        await machine.delete("odd", 0)
        await machine.gone("odd")

    contained = Containment(lambda about, why, _: told.append((about, why)))
    stage(ground, play, containment=contained, limits=QUICK)


def test_pod_with_removed_journal_fails_with_that_reason(ground: Path) -> None:
    async def play(machine: Stage) -> None:
        made = await machine.submit("robbed", SLEEP)
        await machine.running("robbed")
        [pid] = await pids_in(ground / "work" / "team" / "pid")
        (ground / "data" / "pods" / uid_of(made)).unlink()
        ended = await machine.ended("robbed")
        assert phase(ended) == "Failed"
        assert "were removed while the pod ran" in message(ended)
        assert not is_alive(pid)
        assert machine.agent.running == 0
        await machine.delete("robbed", 0)
        await machine.gone("robbed")

    stage(ground, play, limits=QUICK)


def test_pod_with_removed_journal_can_be_deleted(ground: Path) -> None:
    """The deletion comes before the agent next checks that the journal exists."""

    async def play(machine: Stage) -> None:
        made = await machine.submit("robbed", SLEEP)
        await machine.running("robbed")
        [pid] = await pids_in(ground / "work" / "team" / "pid")
        (ground / "data" / "pods" / uid_of(made)).unlink()
        await machine.delete("robbed", 30_000)
        await machine.gone("robbed")
        assert not is_alive(pid)

    stage(ground, play, limits=Limits(retention_ms=0, records_ms=600_000))


def test_fencing_kills_job_of_pod_with_removed_journal(ground: Path) -> None:
    async def play(machine: Stage) -> None:
        made = await machine.submit("robbed", SLEEP)
        await machine.running("robbed")
        [pid] = await pids_in(ground / "work" / "team" / "pid")
        (ground / "data" / "pods" / uid_of(made)).unlink()
        node = await machine.store.get("Node", "", "n1")
        node["spec"] = {"taints": [{"key": OUT_OF_SERVICE, "effect": "NoExecute"}]}
        await machine.store.update(node)

        async def look() -> bool:
            return not is_alive(pid)

        await eventually(look)

    stage(ground, play, limits=Limits(retention_ms=0, records_ms=600_000))


@pytest.mark.parametrize(
    "line",
    [
        {"by": "shim"},
        {"by": "shim", "boot": 7, "shim": "x", "shim_ticks": []},
        {"code": 0},
        {"grace_ms": None},
        [],
    ],
)
def test_agent_starts_despite_corrupt_journal_and_fails_only_its_pod(
    ground: Path, line: object
) -> None:
    async def play(machine: Stage) -> None:
        made = await machine.submit("odd", SLEEP)
        await machine.running("odd")
        [pid] = await pids_in(ground / "work" / "team" / "pid")
        file = ground / "data" / "pods" / uid_of(made)

        async def spoil() -> None:
            request = json.loads(file.read_bytes().split(b"\n")[0])
            request["places"], request["cgroups"] = [["x"]], ["y"]
            file.write_text(f"{json.dumps(request)}\n{json.dumps(line)}\n")

        await machine.restart(spoil)
        await machine.submit("even", "exit 0")
        assert phase(await machine.ended("even")) == "Succeeded"
        ended = await machine.ended("odd")
        assert phase(ended) == "Failed"
        assert not is_alive(pid)

    stage(ground, play, limits=QUICK)


def test_node_status_error_does_not_stop_jobs_and_is_reported(ground: Path) -> None:
    class Picky(MemoryStore):
        async def patch_status(  # type: ignore[override]
            self, kind: str, namespace: str, name: str, status: Wire, *, version: int | None
        ) -> Wire:
            if kind == "Node" and name == "n1" and broken:
                raise ValueError("nobody thought of this")
            return await super().patch_status(kind, namespace, name, status, version=version)

    broken: list[bool] = []
    told: list[About] = []

    async def play(machine: Stage) -> None:
        machine.store.__class__ = Picky
        broken.append(True)
        node = await machine.store.get("Node", "", "n1")
        await machine.store.update({**node, "spec": {"unschedulable": True}})
        await machine.submit("job", "exit 0")
        assert phase(await machine.ended("job")) == "Succeeded"

        async def look() -> list[About]:
            return told

        assert (await eventually(look))[0] == About("Node", "n1")

    contained = Containment(lambda about, _why, _error: told.append(about))
    limits = Limits(retention_ms=0, heartbeat_ms=50)
    stage(ground, play, containment=contained, limits=limits)


def test_failing_task_is_restarted_with_growing_pauses() -> None:
    pauses: list[int] = []
    told: list[str] = []

    class Clock:
        async def sleep(self, ms: int) -> None:
            pauses.append(ms)

    async def work() -> None:
        if len(pauses) < 9:
            raise OSError("no" if len(pauses) < 8 else "never")

    containment = Containment(lambda about, why, _: told.append(f"{about.words}: {why}"))
    asyncio.run(kept_up("it", work, clock=Clock(), containment=containment))  # type: ignore[arg-type]
    assert pauses == [500, 1000, 2000, 4000, 8000, 16000, 32000, 60000, 60000]
    assert told == ["Task it: OSError: no", "Task it: OSError: never"]


def test_malformed_messages_on_agent_pipe_are_ignored(ground: Path) -> None:
    async def play(machine: Stage) -> None:
        pipe = os.open(ground / "data" / "agent.pipe", os.O_WRONLY | os.O_NONBLOCK)
        os.write(pipe, b'{"what": 7}\n[]\nnonsense\n')
        os.close(pipe)
        await machine.submit("job", "exit 0")
        assert phase(await machine.ended("job")) == "Succeeded"

    stage(ground, play)


def test_pod_with_malformed_container_fails_alone(ground: Path) -> None:
    async def play(machine: Stage) -> None:
        made = pod("bare", ["true"])
        part(made, "spec")["containers"] = [7]
        await machine.store.create(made)
        await machine.submit("job", "exit 0")
        assert phase(await machine.ended("job")) == "Succeeded"
        assert phase(await machine.ended("bare")) == "Failed"

    stage(ground, play)


def test_removed_journal_folder_is_created_again(ground: Path) -> None:
    async def play(machine: Stage) -> None:
        (ground / "data" / "pods").rmdir()
        await machine.submit("job", "exit 0")
        assert phase(await machine.ended("job")) == "Succeeded"

    stage(ground, play)
