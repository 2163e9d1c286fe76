"""Drive the compiled shim directly: a zygote to which tests send requests without an agent."""

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

from hatch_build import PROGRAM, ROOT, SHIM, compile_shim, linking
from tests.agent.harness import is_alive

from leasehold.adapters.agent import forks
from leasehold.adapters.agent.journals import Exit, PodJournal, PodJournals, PodStage
from leasehold.adapters.agent.shim.frame import frame_of
from leasehold.adapters.agent.shim.records import Record, boot_id

DEADLINE_S = 30.0
SOURCE = forks.PROGRAM.parent  # in the package under test


class Zygote:
    """A zygote that ends with the test, with the shims it forked and their jobs."""

    def __init__(
        self, errors: Path, *, program: Path = forks.PROGRAM, user: int | None = None
    ) -> None:
        self._socket, theirs = socket.socketpair()
        self._socket.settimeout(DEADLINE_S)
        self.errors = errors
        try:
            with theirs, errors.open("ab") as file:
                self.process = subprocess.Popen(
                    [program], stdin=theirs.fileno(), stdout=file, stderr=file, env={}, cwd="/",
                    user=user,
                )  # fmt: skip
        except OSError:
            self._socket.close()
            raise
        self._lines = self._socket.makefile("rb")
        self._pids: list[int] = []

    def __enter__(self) -> "Zygote":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
        left = [pid for pid in self._pids if _is_shim(pid)]
        try:
            until(lambda: kind is not None or not any(map(is_alive, left)))
        finally:  # also after a failing test, kill the shims that are left
            for pid in filter(_is_shim, left):
                os.kill(pid, signal.SIGKILL)

    def close(self) -> int:
        """Hang up and return the exit status of the zygote."""
        self._lines.close()
        self._socket.close()
        return self.process.wait(DEADLINE_S)

    def send(self, sent: bytes) -> None:
        self._socket.sendall(sent)

    def answer(self) -> tuple[int, str] | None:
        """Return the pid and the uid of the next answer; None if the zygote has hung up."""
        try:
            line = self._lines.readline()
        except ConnectionResetError:
            return None
        if not line:
            return None
        pid, _, uid = os.fsdecode(line).rstrip("\n").partition(" ")
        return int(pid), uid

    def ask(self, journal: PodJournal) -> int:
        """Request a job and return the pid of its shim."""
        self.send(frame_of(journal))
        answer = self.answer()
        assert answer is not None, self.errors.read_text()
        assert answer[0] > 0, self.errors.read_text()
        assert answer[1] == journal.uid
        self._pids.append(answer[0])
        return answer[0]

    def run(self, journal: PodJournal) -> Exit:
        """Run a job to its end and return its exit."""
        until_dead(self.ask(journal))
        assert journal.stage() is PodStage.OVER, self.errors.read_text()
        return journal.exit()


def _is_shim(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/comm").read_text() == f"{PROGRAM}\n"
    except OSError:  # gone
        return False


def until(look: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not look():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.005)


def until_dead(*pids: int) -> None:
    until(lambda: not any(map(is_alive, pids)))


def request(ground: Path, *argv: str, **other: object) -> Record:
    made: Record = {
        "uid": "pod-1", "argv": list(argv), "env": {"PATH": os.environ["PATH"]},
        "cwd": str(ground), "user": None, "groups": [], "notify": str(ground / "nobody"),
        "log_bytes_max": 1 << 20, "log_files_max": 2, "heartbeat_ms": 60_000, "grace_ms": 1000,
        "cgroups": [], "node": "n1", "boot": boot_id(),
    }  # fmt: skip
    return made | other


def script(ground: Path, text: str, **other: object) -> Record:
    return request(ground, "/bin/sh", "-c", text, **other)


def journal_for(ground: Path, asked: Record) -> PodJournal:
    uid = asked["uid"]
    assert isinstance(uid, str)
    return PodJournals(ground).create(uid, asked)


def texts(journal: PodJournal) -> list[str]:
    """Return the appended lines in order, complete or not."""
    records = journal.path.read_bytes()[journal.request_bytes :]
    return [line.decode() for line in records.split(b"\n") if line]


def starts_of(journal: PodJournal) -> list[Record]:
    return _with(journal, "by")


def exit_of(journal: PodJournal) -> Record:
    """Return the only exit record."""
    [record] = _with(journal, "code")
    return record


def _with(journal: PodJournal, member: str) -> list[Record]:
    found = [json.loads(text) for text in texts(journal)]
    return [record for record in found if member in record]


def variant(to: Path, *options: str) -> Path:
    """Compile the shim program with other compiler options."""
    program = to / PROGRAM
    source = SOURCE if (SOURCE / "zygote.c").exists() else ROOT / SHIM
    target, link = linking()
    compile_shim(source, program, target, (*link, *options))
    return program
