"""The processes in a pod's cgroups, as the agent finds and ends them when the shim was killed.

Called by `hunt`. The shim's own way is `offspring.c`, which also makes the cgroups.
"""

import os
from contextlib import suppress

Cgroup = dict[str, object]  # path, and what to set: [[file, value], …]


def kill_in(cgroups: list[Cgroup]) -> None:
    for cgroup in cgroups:
        with suppress(OSError):  # only version 2 has it
            fd = os.open(f"{cgroup['path']}/cgroup.kill", os.O_WRONLY | os.O_CLOEXEC)
            try:
                os.write(fd, b"1")
            finally:
                os.close(fd)


def members(cgroups: list[Cgroup]) -> set[int]:
    """The processes in them."""
    found: set[int] = set()
    for cgroup in cgroups:
        with suppress(OSError), open(f"{cgroup['path']}/cgroup.procs", "rb") as file:  # noqa: PTH123
            found.update(int(pid) for pid in file.read().split())
    return found


def remove(cgroups: list[Cgroup]) -> None:
    for cgroup in cgroups:
        with suppress(OSError):
            os.rmdir(str(cgroup["path"]))  # noqa: PTH106
