"""A pod's folder on disk as the agent sees it: what was asked, whether it runs, how it ended.

Called by `agent`. The records in the folder are the only memory of processes: an agent that starts
reads them and knows as much as the one before it. A process is the one that was recorded if boot,
pid and start time agree. It starts and signals nothing itself.
"""

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path

from leasehold.adapters.agent.shim import offspring, records
from leasehold.adapters.agent.shim.records import Record
from leasehold.core.units import Instant

_UID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_LOG = re.compile(r"log\.[0-9]+")


class Stage(Enum):
    REQUESTED = auto()  # asked for; nobody has started it yet
    RUNNING = auto()  # its shim lives
    ORPHANED = auto()  # its shim is dead and left no exit record; processes may be left
    OVER = auto()  # there is an exit record, and no process
    VOID = auto()  # an agent gave it up before any shim started it


@dataclass(frozen=True, slots=True)
class Exit:
    """How a pod ended. Without a code nobody knows."""

    code: int | None
    signal: int | None
    error: str
    is_oom: bool
    finished_at: Instant
    dropped_bytes: int = 0


class PodFolder:
    """One pod's folder. Reads its records when asked; keeps what cannot change any more."""

    def __init__(self, path: Path, request: Record | None = None) -> None:
        """`request`: all that is written there, if it was made just now."""
        self.path = path
        self.uid = path.name
        self._started: Record | None = None
        self._exit: Record | None = None
        self._request = request
        self._is_lost = None if request is None else False

    @property
    def request(self) -> Record:
        if self._request is None:
            self._request = self._read(records.REQUEST) or {}
        return self._request

    @property
    def started(self) -> Record | None:
        if self._started is None:
            self._started = self._read(records.STARTED)
        return self._started

    @property
    def started_at(self) -> Instant:
        return _whole((self.started or {}).get("started_ms"))

    @property
    def node(self) -> str:
        return str(self.request.get("node", ""))

    @property
    def cgroups(self) -> list[offspring.Cgroup]:
        found = self.request.get("cgroups")
        return found if isinstance(found, list) else []

    @property
    def is_lost(self) -> bool:
        if self._is_lost is None:
            self._is_lost = (self.path / records.LOST).exists()
        return self._is_lost

    def stage(self) -> Stage:
        if self._exit is None:
            self._exit = self._read(records.EXIT)
        if self._exit is not None:
            return Stage.OVER
        if not self.request:
            return Stage.VOID  # not even the request was whole, so nobody can have started it
        started = self.started
        if started is None:
            # Of another boot it may have been started, and nobody can tell any more.
            is_of_this_boot = self.request.get("boot") == records.boot_id()
            return Stage.REQUESTED if is_of_this_boot else Stage.ORPHANED
        if started["by"] != "shim":
            return Stage.VOID
        if self.shim is not None:
            return Stage.RUNNING
        # The record is written before the shim ends, so looking once more misses none.
        self._exit = self._read(records.EXIT)
        return Stage.ORPHANED if self._exit is None else Stage.OVER

    @property
    def shim(self) -> int | None:
        """The pid of its shim, if that lives."""
        started = self.started
        if started is None or started["by"] != "shim" or started["boot"] != records.boot_id():
            return None
        pid = _whole(started["shim"])
        return pid if records.ticks_of(pid) == started["shim_ticks"] else None

    def exit(self) -> Exit:
        assert self._exit is not None, self.uid
        code, number = self._exit["code"], self._exit["signal"]
        return Exit(
            code=code if isinstance(code, int) else None,
            signal=number if isinstance(number, int) else None,
            error=str(self._exit["error"]),
            is_oom=self._exit["oom"] is True,
            finished_at=_whole(self._exit["finished_ms"]),
            dropped_bytes=_whole(self._exit["dropped_bytes"]),
        )

    def give_up(self) -> bool:
        """Nobody will start it from now on; false when somebody already has."""
        with _opened(self.path) as here:
            return records.claim(here, {"by": "agent", "boot": records.boot_id()})

    def ask_to_stop(self, *, grace_ms: int, due_boot_ms: int) -> None:
        with _opened(self.path) as here:
            record: Record = {"grace_ms": grace_ms, "due_boot_ms": due_boot_ms}
            records.put(here, records.STOP, record)

    def mark_lost(self) -> None:
        (self.path / records.LOST).touch()
        self._is_lost = True

    def write_unknown_exit(self, finished_at: Instant) -> None:
        """For a shim that died without a word, once nothing of its pod is left."""
        record: Record = {
            "code": None,
            "signal": None,
            "error": "its shim ended without a record of the exit",
            "oom": False,
            "finished_ms": max(finished_at, self.started_at),
            "dropped_bytes": 0,
        }
        with _opened(self.path) as here:
            records.write(here, records.EXIT, record)

    def last_sign_of_life(self) -> Instant:
        """When it surely still ran: its start, its shim's last touch, or the last of its log."""
        times = [self.started_at]
        for entry in self.path.iterdir():
            if entry.name == records.STARTED or _LOG.fullmatch(entry.name):
                times.append(entry.stat().st_mtime_ns // 1_000_000)
        return max(times)

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)

    def _read(self, name: str) -> Record | None:
        try:
            return records.read_at(f"{self.path}/{name}")
        except (FileNotFoundError, ValueError):  # not there; or cut off by the end of the machine
            return None


class PodFolders:
    """All pod folders of an agent."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.mkdir(mode=0o700, parents=True, exist_ok=True)

    def all(self) -> Iterator[PodFolder]:
        for entry in sorted(self._path.iterdir()):
            if _UID.fullmatch(entry.name):
                yield PodFolder(entry)
            else:
                shutil.rmtree(entry, ignore_errors=True)  # one that was being made or removed

    def find(self, uid: str) -> PodFolder | None:
        path = self.place(uid)
        return PodFolder(path) if path.is_dir() else None

    def place(self, uid: str) -> Path:
        assert _UID.fullmatch(uid), uid
        return self._path / uid

    def create(self, uid: str, request: Record) -> PodFolder:
        """With its request from the first moment on; a name with a dot before it is none yet."""
        place, coming = self.place(uid), self._path / f".{uid}"
        try:
            coming.mkdir(mode=0o700)
        except FileExistsError:  # left by an agent that died here
            shutil.rmtree(coming, ignore_errors=True)
            coming.mkdir(mode=0o700)
        try:
            with _opened(coming) as here:
                records.put(here, records.REQUEST, request)
            coming.rename(place)
        except OSError:
            with suppress(OSError):
                shutil.rmtree(coming)
            raise
        return PodFolder(place, request)

    def discard(self, folder: PodFolder) -> None:
        """Makes its name free at once, whatever is still in it."""
        going = self._path / f".gone.{folder.uid}"
        shutil.rmtree(going, ignore_errors=True)
        with suppress(FileNotFoundError):
            folder.path.rename(going)
        shutil.rmtree(going, ignore_errors=True)


class _opened:  # noqa: N801
    """A folder by its descriptor, as the records want it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> int:
        self._fd = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        return self._fd

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)


def _whole(value: object) -> int:
    return value if isinstance(value, int) else 0
