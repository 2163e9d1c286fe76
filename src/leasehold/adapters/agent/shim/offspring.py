"""Finds and kills the processes in a pod's cgroups after its shim was killed.

Called by `leftovers`. A living shim uses `offspring.c`, which also creates the cgroups.
"""

import os
from contextlib import suppress

Cgroup = dict[str, object]  # path, and settings as [[file, value], …]


def kill_in(cgroups: list[Cgroup]) -> None:
    for cgroup in cgroups:
        with suppress(OSError):  # version 2 only
            fd = os.open(f"{cgroup['path']}/cgroup.kill", os.O_WRONLY | os.O_CLOEXEC)
            try:
                os.write(fd, b"1")
            finally:
                os.close(fd)


def members(cgroups: list[Cgroup]) -> set[int]:
    """Return the pids in the cgroups."""
    found: set[int] = set()
    for cgroup in cgroups:
        with suppress(OSError), open(f"{cgroup['path']}/cgroup.procs", "rb") as file:  # noqa: PTH123
            found.update(int(pid) for pid in file.read().split())
    return found


def remove(cgroups: list[Cgroup]) -> None:
    for cgroup in cgroups:
        with suppress(OSError):
            os.rmdir(str(cgroup["path"]))  # noqa: PTH106
