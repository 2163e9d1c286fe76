"""SQLite's write-ahead log, read without SQLite: which newer images of pages are committed.

`pages` puts them over the file when a damaged one is read; `schema` asks at every start whether the
log hides something. SQLite takes the first frame that is not right for the end of the log: after a
power cut that is so, and what follows was never acknowledged. But each commit waits for the disk
before the next begins; so two commits in a row after a wrong frame prove that the log was longer,
and that the frame was damaged later. Nothing here writes.
"""

import os
import struct
import sys
from dataclasses import dataclass, field
from pathlib import Path

_MAGIC = 0x377F0682  # and one more: checksums of numbers that begin with the high byte
_HEADER = struct.Struct(">8I")  # magic, format, page size, number, two salts, two checksums
_FRAME = struct.Struct(">6I")  # page, pages after this commit or 0, two salts, two checksums
_CHECKED_HEADER, _CHECKED_FRAME = 24, 8  # bytes of each that its checksum is over
_MASK = 0xFFFFFFFF

Sums = tuple[int, int]


def log_of(store: Path) -> Path:
    return store.with_name(store.name + "-wal")


@dataclass(slots=True)
class Log:
    page_bytes: int
    images: dict[int, bytes] = field(default_factory=dict)  # by page, of the last proved commit
    page_count: int = 0  # of the file after it; 0: the log holds no commit
    damaged: set[int] = field(default_factory=set)  # pages whose newest image is not right
    loose: list[bytes] = field(default_factory=list)  # those images, of which rows may be
    wrong_frames: list[int] = field(default_factory=list)  # before commits; 0: its beginning
    commits_after_wrong: int = 0  # that SQLite would pass over in silence


def read_log(path: Path, page_bytes: int) -> Log:
    """The log of a store; an empty one if there is none. `page_bytes`: if it does not say."""
    try:
        content = path.read_bytes()
    except OSError:
        return Log(page_bytes)
    if len(content) < _HEADER.size + _FRAME.size:
        return Log(page_bytes)
    return _Frames(content, page_bytes).read()


def hidden_commits(path: Path, page_bytes: int, *, frames: int) -> int:
    """How many commits SQLite has passed over that took `frames` for the whole log; quick when, as
    always after a plain end, there is nothing behind them."""
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
    except OSError:
        return 0  # whoever opens the store finds out
    return read_log(path, page_bytes).commits_after_wrong if marks > 1 else 0


class _Frames:
    def __init__(self, content: bytes, page_bytes: int) -> None:
        self._content = content
        magic, _, size, _, salt, other, *sums = _HEADER.unpack_from(content)
        self._numbers = ">" if magic == _MAGIC + 1 else "<"
        self._salts, self._sums = (salt, other), (sums[0], sums[1])
        found = checksum(content[:_CHECKED_HEADER], (0, 0), self._numbers)
        is_right = magic in (_MAGIC, _MAGIC + 1) and found == self._sums
        if not is_right:  # the first frame is of whoever wrote last, on a machine like this one
            self._numbers = "<" if sys.byteorder == "little" else ">"
            _, _, salt, other, _, _ = _FRAME.unpack_from(content, _HEADER.size)
            self._salts = (salt, other)
        # Since the last commit that counts: frames, those that are wrong, and whether a commit is
        # among them that still needs another one to prove it.
        self._pending: list[tuple[int, bytes, bool]] = []
        self._wrong: list[int] = []
        self._is_interrupted = False
        self._commits = 0
        self._log = Log(size if is_right else page_bytes)
        if not is_right:
            self._interrupt(0)

    def read(self) -> Log:
        step = _FRAME.size + self._log.page_bytes
        places = range(_HEADER.size, len(self._content) - step + 1, step)
        for number, at in enumerate(places, start=1):
            self._step(number, at, at + step)
        return self._log

    def _step(self, number: int, at: int, end: int) -> None:
        page, count, salt, other, *stored = _FRAME.unpack_from(self._content, at)
        if (salt, other) != self._salts:
            # Of an older log whose place this one has taken; or wrong, if more of ours follows.
            self._interrupt(number)
            return
        content = self._content[at + _FRAME.size : end]
        checked = self._content[at : at + _CHECKED_FRAME] + content
        sums = (stored[0], stored[1])
        is_right = checksum(checked, self._sums, self._numbers) == sums
        self._sums = sums  # as it says: so a frame that is wrong hides only itself
        if not is_right:
            # The first after one without its sums cannot be told from a wrong one.
            self._interrupt(number)
        self._pending.append((page, content, is_right))
        if count and is_right:
            self._commit(count)

    def _interrupt(self, number: int) -> None:
        self._wrong.append(number)
        self._is_interrupted = True

    def _commit(self, count: int) -> None:
        self._commits += bool(self._wrong)
        if self._is_interrupted:
            self._is_interrupted = False  # the next one proves it
            return
        for page, content, is_right in self._pending:
            if is_right:
                self._log.images[page] = content
                self._log.damaged.discard(page)
            else:  # even its number may be wrong: the older image stays
                self._log.damaged.add(page)
                self._log.loose.append(content)
        self._log.page_count = count
        self._log.wrong_frames += self._wrong
        self._log.commits_after_wrong += self._commits
        self._pending, self._wrong, self._commits = [], [], 0


def checksum(data: bytes, sums: Sums, numbers: str) -> Sums:
    """SQLite's, over pairs of 32-bit numbers, going on from `sums`."""
    first, second = sums
    words = iter(struct.unpack(f"{numbers}{len(data) // 4}I", data))
    for even in words:
        first = (first + even + second) & _MASK
        second = (second + next(words) + first) & _MASK
    return first, second
