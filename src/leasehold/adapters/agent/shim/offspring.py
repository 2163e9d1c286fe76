"""Ends every process of a pod: all that ever came of its job, and what its cgroups hold.

Called by the shim, which is the subreaper of everything it started, so that whoever loses its
parent becomes its child: when it has no child left, none of the job's processes is left, whatever
session or group they moved to. The agent uses the cgroup part for pods whose shim was killed.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import suppress

Cgroup = dict[str, object]  # path, and what to set: [[file, value], …]


def kill_all(cgroups: list[Cgroup]) -> None:
    """Returns when the caller has no child any more. One that cannot be killed is waited for."""
    while True:
        kill_in(cgroups)
        for pid in _children():
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return


def _children() -> list[int]:
    me = os.getpid()
    try:
        with open(f"/proc/self/task/{me}/children", "rb") as file:  # noqa: PTH123
            return [int(pid) for pid in file.read().split()]
    except FileNotFoundError:  # a kernel without this list
        return [pid for pid, parent in _parents() if parent == me]


def _parents() -> Iterator[tuple[int, int]]:
    for name in os.listdir("/proc"):  # noqa: PTH208
        if name.isdigit():
            with suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123
                yield int(name), int(file.read().rpartition(b")")[2].split()[1])


def make(cgroups: list[Cgroup], pid: int) -> None:
    """Makes them, sets their limits, and puts the process in."""
    for cgroup in cgroups:
        path = str(cgroup["path"])
        with suppress(FileExistsError):
            os.mkdir(path)  # noqa: PTH102
        settings = cgroup["set"]
        assert isinstance(settings, list)
        for name, value in settings:
            _put(f"{path}/{name}", str(value))
        _put(f"{path}/cgroup.procs", str(pid))


def kill_in(cgroups: list[Cgroup]) -> None:
    for cgroup in cgroups:
        with suppress(OSError):  # only version 2 has it
            _put(f"{cgroup['path']}/cgroup.kill", "1")


def members(cgroups: list[Cgroup]) -> set[int]:
    """The processes in them."""
    found: set[int] = set()
    for cgroup in cgroups:
        with suppress(OSError), open(f"{cgroup['path']}/cgroup.procs", "rb") as file:  # noqa: PTH123
            found.update(int(pid) for pid in file.read().split())
    return found


def oom_kills(cgroups: list[Cgroup]) -> int:
    """How many processes the kernel killed in them for want of memory."""
    count = 0
    for cgroup in cgroups:
        for name in ("memory.events", "memory.oom_control"):  # version 2, version 1
            with suppress(OSError), open(f"{cgroup['path']}/{name}", "rb") as file:  # noqa: PTH123
                fields = dict(line.split(None, 1) for line in file if b" " in line)
                count += int(fields.get(b"oom_kill", 0))
    return count


def remove(cgroups: list[Cgroup]) -> None:
    for cgroup in cgroups:
        with suppress(OSError):
            os.rmdir(str(cgroup["path"]))  # noqa: PTH106


def _put(path: str, value: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, value.encode())
    finally:
        os.close(fd)
