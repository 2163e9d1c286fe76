"""Detects committed transactions that SQLite would silently drop from its write-ahead log.

`schema` checks this at every start. SQLite ends the log at the first frame that is not valid. After
a power failure this is right: the invalid frame was never completely written, and nothing from it
on was acknowledged. But if a frame is damaged later, valid commits may follow it. This module looks
for two such commits in a row. They prove damage, because each commit waits until the one before it
is on disk. Nothing here writes.
"""

import os
import struct
import sys
from pathlib import Path

_MAGIC = 0x377F0682  # or this plus one: checksums over big-endian numbers
_HEADER = struct.Struct(">8I")  # magic, format, page size, number, two salts, two checksums
_FRAME = struct.Struct(">6I")  # page, database size after a commit or 0, two salts, two checksums
_CHECKED_HEADER, _CHECKED_FRAME = 24, 8  # leading bytes that the checksum covers
_MASK = 0xFFFFFFFF

Sums = tuple[int, int]


def log_of(store: Path) -> Path:
    return store.with_name(store.name + "-wal")


def hidden_commits(path: Path, page_bytes: int, *, frames: int) -> int:
    """Return how many commits the log contains after its first `frames` frames, which are all that
    SQLite reads. This is fast if nothing follows them, as after every clean shutdown."""
    try:
        with path.open("rb") as file:
            start = file.read(_HEADER.size + _FRAME.size)
            if len(start) < _HEADER.size + _FRAME.size:
                return 0
            salts = (start[16:24], start[_HEADER.size + 8 : _HEADER.size + 16])
            file.seek(0, os.SEEK_END)
            step, end = _FRAME.size + page_bytes, file.tell()
            marks = 0
            for at in range(_HEADER.size + frames * step, end - step + 1, step):
                file.seek(at)
                header = file.read(_FRAME.size)
                marks += header[8:16] in salts and header[4:8] != bytes(4)
        return _commits_after_wrong(path.read_bytes(), page_bytes) if marks > 1 else 0
    except OSError:
        return 0  # opening the store reports it


def _commits_after_wrong(content: bytes, page_bytes: int) -> int:
    """Return the number of valid commits after the first invalid frame; 0 unless two of them are in
    a row."""
    magic, _, _, _, salt, other, *stored = _HEADER.unpack_from(content)
    numbers = ">" if magic == _MAGIC + 1 else "<"
    salts, sums = (salt, other), (stored[0], stored[1])
    found = _checksum(content[:_CHECKED_HEADER], (0, 0), numbers)
    is_after_wrong = magic not in (_MAGIC, _MAGIC + 1) or found != sums
    if is_after_wrong:  # the first frame is from the last writer, on a machine like this one
        numbers = "<" if sys.byteorder == "little" else ">"
        _, _, salt, other, _, _ = _FRAME.unpack_from(content, _HEADER.size)
        salts = (salt, other)
    commits, in_a_row, is_proved = 0, 0, False
    step = _FRAME.size + page_bytes
    for at in range(_HEADER.size, len(content) - step + 1, step):
        _, count, salt, other, *stored = _FRAME.unpack_from(content, at)
        # Different salts: left from an older log, or damaged.
        is_right = (salt, other) == salts
        if is_right:
            checked = content[at : at + _CHECKED_FRAME] + content[at + _FRAME.size : at + step]
            is_right = _checksum(checked, sums, numbers) == (stored[0], stored[1])
            sums = (stored[0], stored[1])  # as stored, so that an invalid frame hides only itself
        if not is_right:
            is_after_wrong, in_a_row = True, 0
        elif count and is_after_wrong:
            commits, in_a_row = commits + 1, in_a_row + 1
            is_proved = is_proved or in_a_row > 1
    return commits if is_proved else 0


def _checksum(data: bytes, sums: Sums, numbers: str) -> Sums:
    """Return SQLite's checksum over pairs of 32-bit numbers, continuing from `sums`."""
    first, second = sums
    words = iter(struct.unpack(f"{numbers}{len(data) // 4}I", data))
    for even in words:
        first = (first + even + second) & _MASK
        second = (second + next(words) + first) & _MASK
    return first, second
