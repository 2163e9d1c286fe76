"""Finds which cgroups this machine allows, and which ones a pod needs for its limits.

Called by `agent` once at start, and for every pod; the shim creates and removes the pod's cgroups.
Handles cgroup version 2, version 1 and both at once. A limit that this machine cannot set is
skipped; `Cgroups.enforces` returns False for it, and the agent warns the user.
"""

import os
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from leasehold.adapters.agent.shim.offspring import Cgroup
from leasehold.core.objects.quantity import CPU, MEMORY

_PERIOD_US = 100_000
_PROBE = "probe"
_PIDS = "pids"


@dataclass(frozen=True, slots=True)
class Cgroups:
    """The cgroups below which each pod gets its own, one per controller; None if not available."""

    unified: Path | None = None  # version 2, also to kill all processes at once
    unified_has: frozenset[str] = frozenset()  # controllers of `unified`
    memory: Path | None = None  # version 1
    cpu: Path | None = None  # version 1
    pids: Path | None = None  # version 1

    def enforces(self, resource: str) -> bool:
        if resource == MEMORY:
            return self.memory is not None or "memory" in self.unified_has
        assert resource == CPU, resource
        return self.cpu is not None or "cpu" in self.unified_has

    @property
    def counts_processes(self) -> bool:
        return self.pids is not None or _PIDS in self.unified_has

    def of_pod(
        self,
        uid: str,
        *,
        memory_bytes: int | None,
        cpu_milli: int | None,
        pids_max: int | None = None,
    ) -> list[Cgroup]:
        """Return the cgroups that the shim must create for a pod. A limit of None is not set."""
        found: list[Cgroup] = []
        if self.unified is not None:
            found.append({"path": f"{self.unified}/{uid}", "set": []})
        if pids_max is not None:
            self._count_processes(found, uid, pids_max)
        quota = None if cpu_milli is None else max(cpu_milli * _PERIOD_US // 1000, 1000)
        if memory_bytes is not None:
            if "memory" in self.unified_has:
                _set(found[0], "memory.max", memory_bytes)
                _set(found[0], "memory.oom.group", 1)
                if (Path(f"{self.unified}") / "memory.swap.max").exists():
                    _set(found[0], "memory.swap.max", 0)
            elif self.memory is not None:
                limit: Cgroup = {"path": f"{self.memory}/{uid}", "set": []}
                _set(limit, "memory.limit_in_bytes", memory_bytes)
                if (self.memory / "memory.memsw.limit_in_bytes").exists():
                    _set(limit, "memory.memsw.limit_in_bytes", memory_bytes)
                found.append(limit)
        if quota is not None:
            if "cpu" in self.unified_has:
                _set(found[0], "cpu.max", f"{quota} {_PERIOD_US}")
            elif self.cpu is not None:
                share: Cgroup = {"path": f"{self.cpu}/{uid}", "set": []}
                _set(share, "cpu.cfs_period_us", _PERIOD_US)
                _set(share, "cpu.cfs_quota_us", quota)
                found.append(share)
        return found

    def _count_processes(self, found: list[Cgroup], uid: str, most: int) -> None:
        """Limit the pod's processes and threads to `most`, so that a fork bomb cannot take the
        machine."""
        if _PIDS in self.unified_has:
            _set(found[0], "pids.max", most)
        elif self.pids is not None:
            count: Cgroup = {"path": f"{self.pids}/{uid}", "set": []}
            _set(count, "pids.max", most)
            found.append(count)

    def remove(self) -> None:
        """Remove the parent cgroups that no pod uses any more."""
        for parent in (self.unified, self.memory, self.cpu, self.pids):
            if parent is not None:
                with suppress(OSError):
                    parent.rmdir()


def find_cgroups(name: str) -> Cgroups:
    """Find or create the parent cgroups called `name`, for each controller that the machine lets us
    use."""
    mine = _memberships()
    unified, has = None, frozenset[str]()
    memory = cpu = pids = None
    for kind, mount in _mounts():
        if kind == "2":
            # In version 2 only the root may have processes beside limited children.
            for place in (mount, mount / mine.get("", "").lstrip("/")):
                if unified is None or not has:
                    unified = _child(place, name) or unified
                    has = _enabled(place, unified) if unified is not None else has
        if kind == "memory" and memory is None:
            memory = _child(mount / mine.get("memory", "").lstrip("/"), name)
        if kind == "cpu" and cpu is None:
            cpu = _child(mount / mine.get("cpu", "").lstrip("/"), name)
        if kind == _PIDS and pids is None:
            pids = _child(mount / mine.get(_PIDS, "").lstrip("/"), name)
    return Cgroups(unified=unified, unified_has=has, memory=memory, cpu=cpu, pids=pids)


def pids_at_most(wanted: int) -> int:
    """Return the limit for one pod: at most `wanted` and at most half of what the kernel allows."""
    return max(1, min([wanted, *(each // 2 for each in _kernel_counts())]))


@cache
def _kernel_counts() -> tuple[int, ...]:
    """Return the kernel's limits of processes and threads."""
    found = []
    for name in ("pid_max", "threads-max"):
        with suppress(OSError, ValueError):
            found.append(int(Path("/proc/sys/kernel", name).read_text(encoding="ascii")))
    return tuple(found)


def _child(place: Path, name: str) -> Path | None:
    """Create the cgroup `name` in `place`; return None if no cgroups can be created inside it."""
    child = place / name
    try:
        child.mkdir(exist_ok=True)
        (child / _PROBE).mkdir(exist_ok=True)
        is_usable = os.access(child / _PROBE / "cgroup.procs", os.W_OK)
        (child / _PROBE).rmdir()
    except OSError:
        return None
    return child if is_usable else None


def _enabled(place: Path, child: Path) -> frozenset[str]:
    """Try to enable all controllers from `place` down to `child`; return those that the children of
    `child` have."""
    for folder in (place, child):
        for controller in sorted(_NAMES):
            with suppress(OSError):
                (folder / "cgroup.subtree_control").write_text(f"+{controller}")
    try:
        return frozenset((child / "cgroup.subtree_control").read_text(encoding="ascii").split())
    except OSError:
        return frozenset()


def _memberships() -> dict[str, str]:
    """Return our own cgroup path by controller ("" for version 2)."""
    found: dict[str, str] = {}
    with suppress(OSError):
        for line in Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines():
            _, controllers, path = line.split(":", 2)
            for controller in controllers.split(","):
                found[controller] = path
    return found


def _mounts() -> list[tuple[str, Path]]:
    """Return the mount point of each cgroup hierarchy, as (controller or "2", mount point)."""
    found: list[tuple[str, Path]] = []
    with suppress(OSError):
        for line in Path("/proc/self/mountinfo").read_text(encoding="utf-8").splitlines():
            place, _, rest = line.partition(" - ")
            mount, (kind, _, options) = Path(place.split()[4]), rest.split(" ", 2)
            if kind == "cgroup2":
                found.append(("2", mount))
            elif kind == "cgroup":
                found += [(option, mount) for option in options.split(",") if option in _NAMES]
    return found


_NAMES = frozenset({"memory", "cpu", _PIDS})


def _set(cgroup: Cgroup, name: str, value: object) -> None:
    settings = cgroup["set"]
    assert isinstance(settings, list)
    settings.append([name, value])
