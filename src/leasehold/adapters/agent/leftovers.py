"""Finds and kills the processes that are left of a pod whose shim was killed.

Called by `agent`, rarely, because it reads every process of the machine. A process belongs to the
pod if it is in the pod's cgroup, was started with the pod's uid in its environment, or is in the
session of the pod's main process. This is not needed while the shim lives: as subreaper it adopts
the pod's orphans and kills them itself.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from leasehold.adapters.agent.journals import PodJournal
from leasehold.adapters.agent.shim import offspring, records

MARKER = "LEASEHOLD_POD_UID"


def end_leftovers(journal: PodJournal) -> int:
    """Kill the pod's processes and return how many were found; 0 means that nothing is left."""
    started = journal.started or {}
    session = started.get("pid") if started.get("boot") == records.boot_id() else None
    since = started.get("pid_ticks")
    offspring.kill_in(journal.cgroups)
    found = offspring.members(journal.cgroups)
    found.update(_marked(journal.uid))
    if isinstance(session, int) and isinstance(since, int):
        found.update(_in_session(session, since))
    alive = [pid for pid in found if records.ticks_of(pid) is not None]
    for pid in alive:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    if not alive:
        offspring.remove(journal.cgroups)
    return len(alive)


def is_marked(pid: int, uid: str) -> bool:
    """Return whether the process has this pod's uid in its environment, and so was started for the
    pod."""
    wanted = f"{MARKER}={uid}".encode()
    try:
        return wanted in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:  # gone, a kernel thread, or another user's
        return False


def descends(pid: int, ancestor: int | None) -> bool:
    """Return whether `pid` is `ancestor` or descends from it. `ancestor` is a living shim, which
    adopts orphans, so the processes of its job stay below it."""
    for _ in range(64):
        if pid == ancestor:
            return True
        try:
            fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        except OSError:
            return False
        pid = int(fields[1])
        if pid <= 1:
            return False
    return False


def _marked(uid: str) -> Iterator[int]:
    for pid in _processes():
        if is_marked(pid, uid):
            yield pid


def _in_session(session: int, since: int) -> Iterator[int]:
    """Yield the processes of a pod's session: those with this session id that started at `since` or
    later.

    `since` is the start time of the pod's main process, which led the session. Yield nothing if the
    session's pid now belongs to a process with another start time: such a process leads a new
    session."""
    leader = records.ticks_of(session)
    if leader is not None and leader != since:
        return
    for pid in _processes():
        with suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
            if int(fields[3]) == session and int(fields[19]) >= since:
                yield pid


def _processes() -> Iterator[int]:
    me = os.getpid()
    for name in os.listdir("/proc"):  # noqa: PTH208
        if name.isdigit() and int(name) != me:
            yield int(name)
