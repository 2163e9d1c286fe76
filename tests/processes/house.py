"""A data folder whose store several real processes share, with simulated kubelets and users."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from tests.beside import Beside
from tests.processes.member import MARGINS

from leasehold.adapters.asyncio_runtime import AsyncioClock, AsyncioTasks
from leasehold.adapters.objects.storage import Change
from leasehold.adapters.sqlite.shared import SharedStore
from leasehold.core.facts import Node
from leasehold.core.names import API_VERSION, Wire
from leasehold.core.objects.tenure import KIND
from leasehold.core.objects.wire import part, text_at
from leasehold.shell.config.folder import DataFolder
from leasehold.sim.faults.checks import LeaderChange, TenureChecks
from leasehold.sim.machines import Work
from leasehold.sim.nodes import SimFleet

T = TypeVar("T")
ROOT = Path(__file__).resolve().parents[2]
DEADLINE_S = 90
NODES = 4
GPUS = 8


@dataclass(frozen=True)
class LogLine:
    """A line of a member's log."""

    at: int  # milliseconds of the machine's boot clock
    words: str


class Member:
    def __init__(self, folder: Path, name: str, *more: str) -> None:
        self.harms: list[LogLine] = []  # kills and stops by the test
        self._log = folder / f"{name}.log"
        with (folder / f"{name}.out").open("a") as said:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.processes.member", str(folder), name, *more],
                cwd=ROOT, stdout=said, stderr=said,
            )  # fmt: skip

    def lines(self) -> list[LogLine]:
        """Return the complete lines of the log, from every start of this member."""
        if not self._log.exists():
            return []
        lines = self._log.read_text(encoding="utf-8").split("\n")[:-1]
        pairs = (line.split(" ", 1) for line in lines)
        return [LogLine(int(at), words) for at, words in pairs]

    def has_logged(self, words: str) -> bool:
        return any(each.words.startswith(words) for each in self.lines())

    def starts(self) -> int:
        return sum(each.words == "started" for each in self.lines())

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)
        if number is signal.SIGSTOP:
            self.harms.append(LogLine(AsyncioClock().monotonic(), "stopped"))

    def end(self) -> int:
        """End the member cleanly, even if it is stopped."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.terminate()
        return self.process.wait(DEADLINE_S)

    def kill(self) -> None:
        self.harms.append(LogLine(AsyncioClock().monotonic(), "killed"))
        self.process.kill()
        self.process.wait(DEADLINE_S)


class House(Beside):
    """The folder and its members for one test; `stop` ends everything it started."""

    deadline_s = DEADLINE_S

    def __init__(self, folder: Path) -> None:
        self.folder = DataFolder(folder)
        self.folder.prepare()
        self.folder.key()
        self.members: dict[str, Member] = {}
        self._runs = 0
        super().__init__()
        for number in range(NODES):
            self.do(lambda number=number: self.fleet.add_node(_node(f"n{number}")))
        self.ask(lambda: self.store.create(_budget()))

    def start(self, name: str, *more: str) -> Member:
        """Start a member and return when it accepts signals."""
        earlier = self.members.get(name)
        starts = 0 if earlier is None else earlier.starts()
        made = Member(self.folder.root, name, *more)
        made.harms += [] if earlier is None else earlier.harms
        self.members[name] = made
        self.until(lambda: made.starts() > starts)
        return made

    def start_all(self, *names: str, first: tuple[str, ...] = ()) -> None:
        """Start the members; the first, with options `first`, leads before the others start."""
        self.start(names[0], *first)
        self.until(lambda: self.holder() == names[0])
        for name in names[1:]:
            self.start(name)

    def submit(self, gpus: int, *, lasts_ms: int = 500) -> str:
        self._runs += 1
        name = f"run{self._runs}"
        made = self.ask(lambda: self.store.create(_run(name, gpus)))
        uid = text_at(part(made, "metadata"), "uid")
        work = (Work(lasts=lasts_ms),)
        self.do(lambda: self.fleet.assign(uid, work, per_group=False))
        return name

    def phase(self, name: str) -> str:
        run = self.ask(lambda: self.store.get("Run", "team", name))
        return text_at(part(run, "status"), "phase")

    def until_completed(self, *names: str) -> None:
        self.until(lambda: all(self.phase(name) == "Completed" for name in names))

    def holder(self) -> str:
        """Return the holder in the tenure record; "" if there is none."""
        for wire in self.ask(lambda: self.store.list(KIND)).items:
            return text_at(part(wire, "spec"), "holderIdentity").rpartition("_")[0]
        return ""

    def epoch(self) -> int:
        for wire in self.ask(lambda: self.store.list("LedgerHead")).items:
            return int(part(wire, "spec")["epoch"])  # type: ignore[call-overload]
        return 0

    def until(self, holds: Callable[[], bool]) -> None:
        due = time.monotonic() + DEADLINE_S
        while not holds():
            assert time.monotonic() < due, {
                name: [f"{each.at} {each.words}" for each in member.lines()[-20:]]
                for name, member in self.members.items()
            }
            time.sleep(0.05)

    def take_overs(self) -> list[tuple[int, str, int]]:
        """Return epoch and new leader of each take-over, and the milliseconds since the leader
        before it was stopped or killed, or lost its tenure."""
        log = sorted(
            (each.at, name, each.words)
            for name, member in self.members.items()
            for each in (*member.lines(), *member.harms)
        )
        found: list[tuple[int, str, int]] = []
        leader, over = "", 0
        for at, name, words in log:
            if words.startswith("gained"):
                if leader:
                    found.append((int(words.split()[1]), name, at - over))
                leader, over = name, at
            elif name == leader and words.startswith(("lost", "stopped", "killed")):
                leader, over = "nobody", at
        return found

    def judge(self) -> list[LeaderChange]:
        """Check, after all members have ended, that no batch was committed twice, epochs only rise
        and the ledger is valid. Return the take-overs according to the tenure record."""
        assert self.do(lambda: list(self.fleet.breaches)) == []
        problems: list[str] = []
        checks = TenureChecks(
            lambda: (), lambda: 0, problems.append, margins=MARGINS, breaks_clocks=True
        )
        for kind in (KIND, "LedgerHead"):
            for change in self.ask(lambda kind=kind: self._history(kind)):
                checks.on_change(change)
        assert problems == []
        assert checks.evaluated["SealedHeadRejectsOldEpoch"] > 1
        said = subprocess.run(
            [sys.executable, "-m", "leasehold", "ledger", "verify", "--data",
             str(self.folder.root)],
            capture_output=True, text=True, timeout=DEADLINE_S, check=False,
        )  # fmt: skip
        assert said.stdout.startswith("ledger verify: ok"), said.stdout + said.stderr
        committed = [
            int(each.words.split()[1])
            for member in self.members.values()
            for each in member.lines()
            if each.words.startswith("committed")
        ]
        assert len(committed) == len(set(committed)), "two members committed the same batch"
        return checks.take_overs

    async def _history(self, kind: str) -> list[Change]:
        """Return every change of objects of `kind` since the file was created."""
        watch, last = self.store.watch(kind, 0), self.store.version
        found: list[Change] = []
        while (past := await watch.next_stored(100)) is not None and past.version <= last:
            found.append(Change(past.version, past.event, (kind, "", ""), past.body))
        watch.close()
        return found

    def stop(self) -> None:
        for member in self.members.values():
            if member.process.poll() is None:
                member.send(signal.SIGCONT)
                member.kill()
        super().stop()

    async def _live(self) -> None:
        clock, tasks = AsyncioClock(), AsyncioTasks()
        self.store = SharedStore(self.folder.store, tasks, clock)
        self.fleet = SimFleet(self.store, clock, tasks)
        self._is_up.set()
        try:
            await tasks.supervise(self.fleet.run())
        finally:
            self.store.close()


def _node(name: str) -> Node:
    return Node(
        name=name,
        flavor="H100-80GB",
        region="us",
        cluster="gpu-a",
        fabric="a",
        gpus=GPUS,
        cpu_milli=64_000,
        memory_bytes=1 << 40,
    )


def _budget() -> Wire:
    envelope = {"name": "west", "flavor": "H100-80GB", "concurrency": NODES * GPUS}
    return {
        "apiVersion": API_VERSION,
        "kind": "Budget",
        "metadata": {"name": "money", "namespace": "team"},
        "spec": {"owner": "org:team", "envelopes": [envelope]},
    }


def _run(name: str, gpus: int) -> Wire:
    resources = {"gpuType": "H100-80GB", "totalGPUs": gpus, "gpusPerPod": min(GPUS, gpus)}
    container = {"name": "main", "image": "none", "command": ["train"]}
    return {
        "apiVersion": API_VERSION,
        "kind": "Run",
        "metadata": {"name": name, "namespace": "team"},
        "spec": {
            "owner": "org:team",
            "resources": resources,
            "template": {"spec": {"containers": [container]}},
        },
    }
