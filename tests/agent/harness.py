"""A machine under test: an in-memory store, an agent with real processes, and a driver that creates
and deletes Pods as the controller does."""

import json
import secrets
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from leasehold.adapters.agent.agent import Agent, EventNote, LocalNode
from leasehold.adapters.agent.devices import DeviceWatch
from leasehold.adapters.agent.limits import Limits
from leasehold.adapters.agent.users import Users
from leasehold.adapters.asyncio_runtime import AsyncioClock, AsyncioTasks, run
from leasehold.adapters.containment import Containment
from leasehold.adapters.memory.store import MemoryStore
from leasehold.core.names import GROUP, Wire
from leasehold.core.objects.node import Labels
from leasehold.core.objects.pod import pod_to_wire
from leasehold.core.objects.wire import list_at, part, text_at
from leasehold.ports.store import NotFound

T = TypeVar("T")

DEADLINE_S = 30.0
NODE = LocalNode("n1", flavor="virtual", region="here", cluster="c1", domain="d1", gpus=8)


@dataclass
class Stage:
    """One machine under test: its store, its agent and their settings."""

    folder: Path
    clock: AsyncioClock
    tasks: AsyncioTasks
    nodes: Sequence[LocalNode] = (NODE,)
    limits: Limits = field(default_factory=lambda: Limits(retention_ms=0, past_logs_ms=0))
    devices: DeviceWatch | None = None
    configured: Mapping[str, str] = field(default_factory=dict)
    notes: list[EventNote] = field(default_factory=list)
    containment: Containment = field(default_factory=Containment)

    def __post_init__(self) -> None:
        # The agent finds processes by pod uid, and other tests run at the same time.
        self.store = MemoryStore(self.tasks, self.clock, prefix=f"uid-{secrets.token_hex(4)}")
        self.agent = self.new_agent()

    def new_agent(self) -> Agent:
        data = self.folder / "data"
        data.mkdir(mode=0o700, exist_ok=True)
        return Agent(
            self.store,
            self.clock,
            self.tasks,
            folder=data,
            work=self.folder / "work",
            nodes=self.nodes,
            labels=Labels(),
            users=Users(data, work=self.folder / "work", configured=self.configured),
            note=self.notes.append,
            limits=self.limits,
            devices=self.devices,
            containment=self.containment,
        )

    async def start(self) -> None:
        await self.agent.prepare()
        self.tasks.spawn("agent", self.agent.run())

    async def restart(self, meanwhile: Callable[[], Awaitable[None]] | None = None) -> None:
        """Stop the agent, then start a new one on the same folder and store."""
        await self.agent.stop()
        if meanwhile is not None:
            await meanwhile()
        self.agent = self.new_agent()
        await self.start()

    async def submit(self, name: str, script: str, **other: object) -> Wire:
        """Create a pod that runs a shell script."""
        return await self.store.create(pod(name, ["/bin/sh", "-c", script], **other))  # type: ignore[arg-type]

    async def get(self, name: str, namespace: str = "team") -> Wire:
        return await self.store.get("Pod", namespace, name)

    async def delete(self, name: str, grace_ms: int) -> None:
        await self.store.delete("Pod", "team", name, uid=None, grace_ms=grace_ms)

    async def ended(self, name: str) -> Wire:
        """Return the pod once it has ended."""

        async def look() -> Wire | None:
            found = await self.get(name)
            return found if phase(found) in ("Succeeded", "Failed") else None

        return await eventually(look)

    async def running(self, name: str) -> Wire:
        async def look() -> Wire | None:
            found = await self.get(name)
            return found if phase(found) == "Running" else None

        return await eventually(look)

    async def gone(self, name: str) -> None:
        async def look() -> bool:
            try:
                await self.get(name)
            except NotFound:
                return True
            return False

        await eventually(look)

    async def log(self, wire: Wire, **query: object) -> bytes:
        return b"".join([portion async for portion in self.agent.logs(wire, **query)])  # type: ignore[arg-type]


async def eventually(look: Callable[[], Awaitable[T]]) -> T:
    """Call `look` until it returns something true, and return that."""
    deadline = time.monotonic() + DEADLINE_S
    clock = AsyncioClock()
    while True:
        found = await look()
        if found:
            return found
        assert time.monotonic() < deadline, "it did not happen in time"
        await clock.sleep(10)


def stage(
    ground: Path, play: Callable[[Stage], Coroutine[object, object, T]], **settings: object
) -> T:
    """Run `play` against an agent, and end all processes afterwards."""

    async def main(clock: AsyncioClock, tasks: AsyncioTasks) -> T:
        built = Stage(ground, clock, tasks, **settings)  # type: ignore[arg-type]
        await built.start()
        try:
            return await play(built)
        finally:
            await built.agent.end_all()
            await built.agent.stop()

    return run(main)


def pod(
    name: str,
    command: Sequence[str],
    *,
    namespace: str = "team",
    node: str = "n1",
    run_name: str = "train",
    run_uid: str = "run-1",
    attempt: int = 1,
    env: Mapping[str, str] | None = None,
    slots: str = "",
    container: Wire | None = None,
) -> Wire:
    """Return a Pod as the controller writes it."""
    template = {
        "spec": {
            "containers": [{"name": "main", "image": "none", "command": list(command)}
                           | (container or {})]
        }
    }  # fmt: skip
    made = pod_to_wire(
        json.dumps(template).encode(),
        name=name,
        namespace=namespace,
        node=node,
        gpus=len(slots.split(",")) if slots else 1,
        labels={
            f"{GROUP}/run": run_name,
            f"{GROUP}/run-uid": run_uid,
            f"{GROUP}/group-index": "0",
            f"{GROUP}/pod-index": "0",
            f"{GROUP}/attempt": str(attempt),
        },
        env={"LEASEHOLD_RUN": f"{namespace}/{run_name}", **(env or {})},
        grace=30_000,
    )
    if slots:
        part(made, "metadata")["annotations"] = {f"{GROUP}/slots": slots}
    return made


def phase(wire: Wire) -> str:
    return text_at(part(wire, "status"), "phase")


def terminated(wire: Wire) -> Wire:
    statuses = list_at(part(wire, "status"), "containerStatuses")
    return part(part(statuses[0], "state"), "terminated")


def uid_of(wire: Wire) -> str:
    return text_at(part(wire, "metadata"), "uid")


def is_alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123
            return file.read().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except (FileNotFoundError, ProcessLookupError):
        return False


async def pids_in(path: Path, count: int = 1) -> list[int]:
    """Return the numbers that a job wrote to a file, once there are at least `count`."""

    async def look() -> list[int]:
        words = path.read_text().split() if path.exists() else []
        return [int(word) for word in words] if len(words) >= count else []

    return await eventually(look)
