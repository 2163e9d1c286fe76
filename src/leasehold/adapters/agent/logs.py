"""Reads what a job printed, as `pods/log` is asked for it: from where, how much, and going on.

Called by `agent`. The files are the shim's (`shim/logfile.h`): numbered, each line with its instant
and stream; there are none while nothing was printed. A follower looks a few times a second, only
while somebody follows, and ends when the pod has ended and everything was read.
"""

from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from leasehold.adapters.agent.journals import PodJournal, PodStage
from leasehold.core.units import Instant, format_instant, parse_instant
from leasehold.ports.runtime import Clock

LOOK_MS = 250
_CHUNK_BYTES = 256 * 1024
_UNENDED = b"P"
MISSED = "leasehold: output is missing here, it was printed faster than it was read"


class NoLog(Exception):  # noqa: N818
    """There is nothing to show; the text says why, in the words of an API server."""


class NoPod(NoLog):
    """Nor is there such a pod, nor the records of one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogQuery:
    follow: bool = False
    timestamps: bool = False
    tail_lines: int | None = None
    since_ms: Instant | None = None  # by the wall
    limit_bytes: int | None = None


async def read_log(journal: PodJournal, query: LogQuery, clock: Clock) -> AsyncIterator[bytes]:
    """What the job printed, in portions, byte by byte as it was but for the stamps asked for."""
    files = _Files(journal.logs, clock.now)
    shown = _Shown(query)
    if query.tail_lines is not None:
        files.skip_to_last(query.tail_lines)
    while True:
        is_over = journal.stage() in (
            PodStage.OVER,
            PodStage.VOID,
        )  # before the last look, not after
        for lines in files.read():
            text = shown.of(lines)
            if text:
                yield text
            if shown.is_full:
                return
        if is_over or not query.follow or not journal.path.exists():
            return
        await clock.sleep(LOOK_MS)


class _Files:
    """The lines of all files, each once, in order."""

    def __init__(self, folder: Path, now: Callable[[], Instant]) -> None:
        self._folder = folder
        self._now = now
        self._number = min(self._numbers(), default=1)
        self._offset = 0

    def read(self) -> Iterator[list[bytes]]:
        """Whole lines that were not read yet, until there are no more for now."""
        while True:
            path = self._folder / f"log.{self._number}"
            has_next = (self._folder / f"log.{self._number + 1}").exists()
            try:
                with path.open("rb") as file:
                    file.seek(self._offset)
                    while portion := file.read(_CHUNK_BYTES):
                        whole, newline, _ = portion.rpartition(b"\n")
                        if not newline:
                            break
                        self._offset += len(whole) + 1
                        file.seek(self._offset)
                        yield whole.split(b"\n")
            except FileNotFoundError:  # not yet, or rotated away while we were elsewhere
                numbers = [number for number in self._numbers() if number > self._number]
                if not numbers:
                    return
                self._number, self._offset = min(numbers), 0
                yield [f"{format_instant(self._now())} stderr F {MISSED}".encode()]
                continue
            if not has_next:
                return
            self._number, self._offset = self._number + 1, 0

    def skip_to_last(self, lines: int) -> None:
        """Goes to where the last so many lines begin; a line in pieces is one line."""
        wanted = lines
        for number in sorted(self._numbers(), reverse=True):
            starts = _line_starts((self._folder / f"log.{number}").read_bytes())
            self._number = number
            if wanted < len(starts):
                self._offset = starts[len(starts) - wanted] if wanted else -1
                break
            self._offset, wanted = 0, wanted - len(starts)
        if self._offset < 0:
            self._offset = (self._folder / f"log.{self._number}").stat().st_size

    def _numbers(self) -> list[int]:
        names = [path.name.partition(".")[2] for path in self._folder.glob("log.*")]
        return [int(name) for name in names if name.isdigit()]


def _line_starts(content: bytes) -> list[int]:
    """Where the lines of the job begin."""
    starts, offset, goes_on = [], 0, False
    for line in content.split(b"\n")[:-1]:
        if not goes_on:
            starts.append(offset)
        goes_on = line.split(b" ", 3)[2:3] == [_UNENDED]
        offset += len(line) + 1
    return starts


class _Shown:
    """From the lines of the files to what is asked for."""

    def __init__(self, query: LogQuery) -> None:
        self._query = query
        self._left = query.limit_bytes
        self._goes_on: dict[bytes, bool] = {}  # by stream: whether a line of it has begun
        self.is_full = self._left is not None and self._left <= 0

    def of(self, lines: list[bytes]) -> bytes:
        shown: list[bytes] = []
        since = self._query.since_ms
        for line in lines:
            stamp, stream, flag, text = line.split(b" ", 3)
            if since is not None and (parse_instant(stamp.decode()) or 0) < since:
                continue
            if self._query.timestamps and not self._goes_on.get(stream):
                shown.append(stamp + b" ")
            self._goes_on[stream] = flag == _UNENDED
            shown.append(text)
            if flag != _UNENDED:
                shown.append(b"\n")
        found = b"".join(shown)
        if self._left is not None:
            found = found[: self._left]
            self._left -= len(found)
            self.is_full = self._left <= 0
        return found
