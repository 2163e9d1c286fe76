"""The agent's view of a pod's journal on disk: the request, whether the pod runs, and how it ended.

Called by `pods`, `shims` and `logs`. A journal is one append-only file, `pods/UID`: the request
first, then records of agent and shim. The job's output, if any, is in `logs/UID`. Journals are the
only memory of processes: an agent that starts reads them and knows as much as the one before. A
running process is taken for the recorded one only if boot id, pid and start time match. Nothing is
started or signalled here.
"""

import os
import re
import secrets
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
_BY_SHIM = {"boot", "shim", "shim_ticks"}
_EXIT = {"code", "signal", "error", "oom", "finished_ms", "dropped_bytes"}
_GONE = ".gone."  # prefix of the name of a journal that is being removed


class PodStage(Enum):
    REQUESTED = auto()  # requested but not started
    RUNNING = auto()  # its shim is alive
    ORPHANED = auto()  # its shim died without an exit record; processes may be left
    OVER = auto()  # it has an exit record and no processes
    VOID = auto()  # an agent gave it up before a shim started it


class RecordsGone(Exception):  # noqa: N818 - named for the condition
    """The journal of a running pod was removed, so its end could not be recorded."""


@dataclass(frozen=True, slots=True)
class Exit:
    """How a pod ended. `code` is None if that is unknown."""

    code: int | None
    signal: int | None
    error: str
    is_oom: bool
    finished_at: Instant
    dropped_bytes: int = 0


class PodJournal:
    """One pod's journal. Reads new records on demand and keeps what it has read."""

    def __init__(
        self, folder: Path, uid: str, *, request: Record | None = None, request_bytes: int = 0
    ) -> None:
        """`folder`: the agent's folder. `request`: given for a journal that was just created, which
        then contains nothing else."""
        self.uid = uid
        self.folder = f"{folder}/pods"
        self.logs_from_folder = f"../logs/{uid}"
        self.request_bytes = request_bytes  # offset where the records begin
        self._request = request
        self._read_bytes = request_bytes  # read up to this offset
        self._started: Record | None = None
        self._exit: Record | None = None
        self._stop: Record | None = None
        self._is_lost = self._is_lost_written = False
        self._watched: int | None = None  # pid of the watched shim; not reusable meanwhile
        self._is_known = False  # the watched pid was verified to be the shim

    @property
    def path(self) -> Path:
        return Path(self.folder, self.uid)

    @property
    def logs(self) -> Path:
        """The folder with the job's output; it does not exist if the job has written none."""
        return Path(self.folder).parent / "logs" / self.uid

    @property
    def request(self) -> Record:
        if self._request is None:
            self._look()
        return self._request or {}

    @property
    def started(self) -> Record | None:
        if self._started is None:
            self._look()
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
        known = found if isinstance(found, list) else []
        return [each for each in known if isinstance(each, dict) and "path" in each]

    @property
    def devices(self) -> list[str]:
        """The UUIDs of the pod's devices."""
        found = self.request.get("devices")
        return [str(each) for each in found] if isinstance(found, list) else []

    @property
    def is_removed(self) -> bool:
        """Whether the journal's file was deleted: records written from now on would be lost."""
        return not os.path.lexists(self._place)

    @property
    def is_lost(self) -> bool:
        """Whether the pod's node was declared dead, so that the pod's result does not count."""
        if self._request is None:
            self._look()
        return self._is_lost

    def stage(self) -> PodStage:
        if self._exit is None:
            self._look()
        if self._exit is not None:
            return PodStage.OVER
        if not self.request:
            return PodStage.VOID  # the request is incomplete, so no shim can have started it
        started = self._started
        if started is None:
            # After a reboot it is unknown whether it was started.
            is_of_this_boot = self.request.get("boot") == records.boot_id()
            return PodStage.REQUESTED if is_of_this_boot else PodStage.ORPHANED
        if started["by"] != "shim":
            return PodStage.VOID
        if self.shim is not None:
            return PodStage.RUNNING
        # The shim writes its record before it ends, so a second look cannot miss it.
        self._look()
        return PodStage.ORPHANED if self._exit is None else PodStage.OVER

    @property
    def shim(self) -> int | None:
        """The pid of the pod's shim; None if the shim is not alive."""
        started = self.started
        if started is None or started["by"] != "shim" or started["boot"] != records.boot_id():
            return None
        pid, ticks = _whole(started["shim"]), started["shim_ticks"]
        if self._is_known and pid == self._watched:
            return pid
        if ticks is None or records.ticks_of(pid) != ticks:
            return None
        self._is_known = pid == self._watched
        return pid

    def watch(self, pid: int | None) -> None:
        """Note the pid of the shim whose end is being watched; None: that shim has ended."""
        self._watched, self._is_known = pid, False

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
        """Prevent every later start of the pod; return False if a shim has already started it.

        The first start record in the file counts. The agent therefore appends a record of its own,
        and reads back whose record comes first."""
        if self.started is None:
            records.append(self._place, {"by": "agent", "boot": records.boot_id()})
        return self.started is not None and self.started["by"] == "agent"

    def ask_to_stop(self, *, grace_ms: int, due_boot_ms: int) -> None:
        """Record a stop request; the newest request counts. A request with the same grace period as
        before changes nothing."""
        if self._stop is None or self._stop["grace_ms"] != grace_ms:
            stop: Record = {"grace_ms": grace_ms, "due_boot_ms": due_boot_ms}
            records.append(self._place, stop)
            self._stop = stop

    def mark_lost(self) -> None:
        """Mark the pod as lost, because its node was declared dead. The mark holds in memory even
        if writing it raises `OSError`."""
        is_written = self.is_lost and self._is_lost_written
        self._is_lost = True
        if not is_written:
            records.append(self._place, {"lost": True})
            self._is_lost_written = True

    def write_unknown_exit(self, finished_at: Instant) -> None:
        """Record an end with an unknown exit code, for a shim that died without recording one. No
        process of the pod may be left."""
        record: Record = {
            "code": None,
            "signal": None,
            "error": "the shim of the pod ended without recording an exit code",
            "oom": False,
            "finished_ms": max(finished_at, self.started_at),
            "dropped_bytes": 0,
        }
        records.append(self._place, record, sync=True)

    def last_sign_of_life(self) -> Instant:
        """Return the last instant at which the pod surely ran: its start, or the newest change of
        its journal or of its log."""
        times = [self.started_at]
        for path in (self.path, *self.logs.glob("log.*")):
            with suppress(FileNotFoundError):
                times.append(path.stat().st_mtime_ns // 1_000_000)
        return max(times)

    def remove(self) -> None:
        """Remove the logs first and the journal last: a restarted agent finds what to remove by the
        journal."""
        shutil.rmtree(self.logs, ignore_errors=True)
        with suppress(OSError):
            self.path.unlink()

    @property
    def _place(self) -> str:
        return f"{self.folder}/{self.uid}"

    def _look(self) -> None:
        """Read the records that were appended since the last look. An incomplete last line is read
        again next time."""
        begin = self._read_bytes
        text = records.read(self._place, begin)
        if self._request is None:
            line, newline, text = text.partition(b"\n")
            self._request = next(records.parse(line), {}) if newline else {}
            self.request_bytes = begin = len(line + newline)
        for record in records.parse(text):
            self._take(record)
        self._read_bytes = begin + text.rfind(b"\n") + 1  # correct even if two threads run this

    def _take(self, record: Record) -> None:
        """Apply one record. A record with missing fields was not written by us, and is ignored."""
        if "by" in record:
            is_whole = record["by"] != "shim" or record.keys() >= _BY_SHIM
            self._started = self._started or (record if is_whole else None)
        elif record.keys() >= _EXIT:
            self._exit = self._exit or record
        elif "grace_ms" in record:
            self._stop = record
        elif "lost" in record:
            self._is_lost = self._is_lost_written = True


class PodJournals:
    """All journals of an agent, in its folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._pods, self._logs = folder / "pods", folder / "logs"
        self._make_folders()

    def _make_folders(self) -> None:
        """Create the folders, also if they were removed."""
        for each in (self._pods, self._logs):
            each.mkdir(mode=0o700, parents=True, exist_ok=True)

    def all(self) -> Iterator[PodJournal]:
        """Yield all journals. Remove everything else: half-removed journals, unknown files and logs
        without a journal."""
        known = {path.name for path in self._pods.iterdir() if _is_journal(path)}
        for path in (*self._pods.iterdir(), *self._logs.iterdir()):
            if path.name not in known:
                _remove(path)
        for uid in sorted(known):
            yield self.at(uid)

    def at(self, uid: str) -> PodJournal:
        """Return the journal of the pod with this uid. Its file need not exist."""
        assert _UID.fullmatch(uid), uid
        return PodJournal(self._folder, uid)

    def create(self, uid: str, request: Record) -> PodJournal:
        """Create a journal with its request; after a crash the journal is either complete or void.

        Raise `FileExistsError` if the pod has a journal that is not void: a shim may have been
        asked to start that one. Each journal gets a random seal, by which a shim tells it from an
        earlier journal of the same pod that was given up."""
        sealed = {**request, "seal": secrets.token_hex(8)}
        journal = self.at(uid)
        place = str(journal.path)
        try:
            size = records.create(place, sealed)
        except FileNotFoundError:
            self._make_folders()
            size = records.create(place, sealed)
        except FileExistsError:
            if journal.stage() is not PodStage.VOID:
                raise
            self.discard(journal)
            size = records.create(place, sealed)
        return PodJournal(self._folder, uid, request=sealed, request_bytes=size)

    def discard(self, journal: PodJournal) -> None:
        """Delete a journal. The file is renamed first: a shim that has the file open then finds it
        renamed, and starts nothing."""
        going = self._pods / f"{_GONE}{journal.uid}"
        with suppress(FileNotFoundError):
            journal.path.rename(going)
            going.unlink()


def _is_journal(path: Path) -> bool:
    return _UID.fullmatch(path.name) is not None and path.is_file()


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()


def _whole(value: object) -> int:
    return value if isinstance(value, int) else 0
