"""Records in a pod's journal: JSON lines, appended so that a torn write damages only itself.

The agent's side; `records.c` is the shim's. A record is one write with a newline before and after
it. It counts as soon as its object is complete; anything else is skipped. A pod's end is synced
before it is reported; other records need not survive a reboot. `journals` defines their meaning.
"""

import errno
import json
import os
import time
from collections.abc import Iterator
from contextlib import suppress

import msgspec

Record = dict[str, object]

_MS = 1_000_000
_READ_BYTES = 16 * 1024  # usually the whole journal
_READ_BYTES_MAX = 1024 * 1024


_boot: list[str] = []  # constant for the life of a process


def boot_id() -> str:
    if not _boot:
        _boot.append(_read_boot_id())
    return _boot[0]


def _read_boot_id() -> str:
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:  # noqa: PTH123
        return file.read().strip()


def boot_ms() -> int:
    """Return milliseconds since boot, including suspend; never goes back."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // _MS


def ticks_of(pid: int) -> int | None:
    """Return the start time of a process in clock ticks since boot; None if it is gone or a zombie.
    Together with the boot id this identifies a process for good, which a pid does not."""
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


def create(path: str, request: Record) -> int:
    """Create a journal and return the offset of its records. Not synced: a reboot makes it void.
    Raise `FileExistsError`. Any other error leaves no file, or one without a complete line."""
    body = _encoded(request) + b"\n"
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        _write(fd, body, path)
    except OSError:
        with suppress(OSError):
            os.unlink(path)  # noqa: PTH108
        raise
    finally:
        os.close(fd)
    return len(body)


def _encoded(request: Record) -> bytes:
    try:
        return msgspec.json.encode(request)  # ten times as fast
    except UnicodeEncodeError:  # a folder name with bytes that are no text
        return json.dumps(request).encode()


def append(path: str, record: Record, *, sync: bool = False) -> None:
    """Append a record; raise `OSError`, also after a partial write."""
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
    try:
        _write(fd, b"\n" + json.dumps(record).encode() + b"\n", path)
        if sync:
            os.fsync(fd)
    finally:
        os.close(fd)
    if sync:
        _sync_folder(os.path.dirname(path))  # noqa: PTH120


def read(path: str, begin: int) -> bytes:
    """Return everything from offset `begin` on; b"" if the journal does not exist."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return b""
    parts: list[bytes] = []
    size = _READ_BYTES
    try:
        while True:
            parts.append(os.pread(fd, size, begin))
            if len(parts[-1]) < size:
                return b"".join(parts)
            begin, size = begin + size, _READ_BYTES_MAX
    finally:
        os.close(fd)


def parse(lines: bytes) -> Iterator[Record]:
    """Yield the complete records."""
    for line in lines.split(b"\n"):
        if line:
            with suppress(ValueError):  # torn by a full disk or a crash of the machine
                found = json.loads(line)
                if isinstance(found, dict):
                    yield found


def _write(fd: int, body: bytes, path: str) -> None:
    if os.write(fd, body) != len(body):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)


def _sync_folder(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
