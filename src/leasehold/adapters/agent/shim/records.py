"""Small JSON records in a pod's folder, written so that they are there wholly or not at all.

The agent's side; `records.c` is the shim's. How a pod ended is synced with its folder before
anybody acts on it; the rest need not outlive the boot. `claim` is how a pod is started at most
once: of all who try to write the record of the start, the file system lets one win. Nothing here
decides anything.
"""

import json
import os
import time

REQUEST = "request.json"  # the agent: what to run
STARTED = "started.json"  # whoever won the start: a shim that runs it, or an agent that gave it up
EXIT = "exit.json"  # the shim: how it ended
STOP = "stop.json"  # the agent: that it must end, and by when
LOST = "lost"  # the agent: its node was declared dead, so that its end is nobody's result

Record = dict[str, object]

_MS = 1_000_000


_boot: list[str] = []  # read once: a process does not outlive its boot


def boot_id() -> str:
    if not _boot:
        _boot.append(_read_boot_id())
    return _boot[0]


def _read_boot_id() -> str:
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:  # noqa: PTH123
        return file.read().strip()


def boot_ms() -> int:
    """Milliseconds since boot, also while suspended; never goes back."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // _MS


def ticks_of(pid: int) -> int | None:
    """When a process started, in clock ticks since boot; None when it is gone or a zombie.

    With the boot id this names a process for good, which a pid alone does not.
    """
    try:
        fd = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fields = os.read(fd, 1024).rpartition(b")")[2].split(None, 20)
    except ProcessLookupError:
        return None
    finally:
        os.close(fd)
    return None if fields[0] in (b"Z", b"X") else int(fields[19])


def read_at(path: str) -> Record:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    with open(fd, "rb") as file:  # noqa: PTH123
        found = json.loads(file.read())
    assert isinstance(found, dict), path
    return found


def write(folder: int, name: str, record: Record) -> None:
    """Replaces the record, and syncs it."""
    spare = f"{name}.{os.getpid()}"
    _write_spare(folder, spare, record)
    os.rename(spare, name, src_dir_fd=folder, dst_dir_fd=folder)
    os.fsync(folder)


def put(folder: int, name: str, record: Record) -> None:
    """Replaces the record without waiting for the disk: for what a reboot makes void anyway."""
    spare = f"{name}.{os.getpid()}"
    _write_spare(folder, spare, record, sync=False)
    os.rename(spare, name, src_dir_fd=folder, dst_dir_fd=folder)


def claim(folder: int, record: Record) -> bool:
    """Writes the record of the start, if nobody has; true for the one that did. Not synced: what
    it speaks of is over with this boot, and an agent that finds a request of another boot knows."""
    spare = f"{STARTED}.{os.getpid()}"
    _write_spare(folder, spare, record, sync=False)
    try:
        os.link(spare, STARTED, src_dir_fd=folder, dst_dir_fd=folder)
    except FileExistsError:
        return False
    finally:
        os.unlink(spare, dir_fd=folder)
    return True


def _write_spare(folder: int, spare: str, record: Record, *, sync: bool = True) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    fd = os.open(spare, flags, 0o600, dir_fd=folder)
    try:
        body = json.dumps(record).encode()
        if os.write(fd, body) != len(body):
            raise OSError(28, os.strerror(28), spare)
        if sync:
            os.fsync(fd)
    except OSError:
        os.unlink(spare, dir_fd=folder)
        raise
    finally:
        os.close(fd)
