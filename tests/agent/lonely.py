"""Run agents in separate processes that tests can kill: `python -m tests.agent.lonely FOLDER`.

For every line on its input the program forks a process with a file store and an agent, and prints
the pid. A line has one shell script and the names of the pods that the process creates to run that
script: `SCRIPT<tab>NAME,NAME,…`.
"""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

from tests.agent.harness import NODE, pod

from leasehold.adapters.agent.agent import Agent
from leasehold.adapters.agent.limits import Limits
from leasehold.adapters.agent.users import Users
from leasehold.adapters.asyncio_runtime import AsyncioClock, AsyncioTasks, run
from leasehold.adapters.sqlite.group import GroupStore
from leasehold.core.objects.node import Labels
from leasehold.ports.store import AlreadyExists

ROOT = Path(__file__).resolve().parents[2]


class Lonely:
    """The handle that a test has on the process that forks agents."""

    def __init__(self, folder: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.agent.lonely", str(folder)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def start(self, script: str, names: list[str]) -> int:
        """Start an agent and return its pid."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{script}\t{','.join(names)}\n".encode())
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def wait(self, pid: int) -> None:
        """Wait until a killed agent is gone, and its lock is free."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"wait {pid}\n".encode())
        self._process.stdin.flush()
        self._process.stdout.readline()

    def close(self) -> None:
        self._process.communicate()


def agent_on(folder: Path, store: GroupStore, clock: AsyncioClock, tasks: AsyncioTasks) -> Agent:
    data = folder / "data"
    data.mkdir(mode=0o700, exist_ok=True)
    return Agent(
        store,
        clock,
        tasks,
        folder=data,
        work=folder / "work",
        nodes=[NODE],
        labels=Labels(),
        users=Users(data, work=folder / "work"),
        note=lambda _: None,
        limits=Limits(retention_ms=0),
    )


def live(folder: Path, script: str, names: list[str]) -> None:
    async def main(clock: AsyncioClock, tasks: AsyncioTasks) -> None:
        store = GroupStore(folder / "store.db", tasks, clock)
        agent = agent_on(folder, store, clock, tasks)
        await agent.prepare()
        tasks.spawn("agent", agent.run())
        for name in names:
            try:
                await store.create(pod(name, ["/bin/sh", "-c", script]))
            except AlreadyExists:
                continue
        await asyncio.Event().wait()

    run(main)


def serve(folder: Path) -> None:
    for line in sys.stdin:
        if line.startswith("wait "):
            os.waitpid(int(line.split()[1]), 0)
            print("gone", flush=True)
            continue
        script, _, names = line.rstrip("\n").partition("\t")
        pid = os.fork()
        if pid == 0:
            os.close(0)
            live(folder, script, [name for name in names.split(",") if name])
        print(pid, flush=True)


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
