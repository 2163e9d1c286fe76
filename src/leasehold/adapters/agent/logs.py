"""Reads a job's output for `pods/log`: from where, how much, and whether to follow.

Called by `agent`. The shim writes the files (`shim/logfile.h`). They are numbered, and each line
has a timestamp and the name of its stream; before the first output no file exists. A follower polls
a few times per second. It ends when the pod has ended and everything was read.
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
MISSED = (
    "leasehold: output is missing here, because the job printed faster than leasehold could read"
)


class NoLog(Exception):  # noqa: N818
    """No log can be shown; the text gives the reason in the words of a Kubernetes API server."""


class NoPod(NoLog):
    """Neither the pod nor a kept log of it exists."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogQuery:
    follow: bool = False
    timestamps: bool = False
    tail_lines: int | None = None
    since_ms: Instant | None = None  # by the wall clock
    limit_bytes: int | None = None


async def read_log(journal: PodJournal, query: LogQuery, clock: Clock) -> AsyncIterator[bytes]:
    """Yield the job's output in chunks, unchanged except for requested timestamps."""
    files = _Files(journal.logs, clock.now)
    shown = _Shown(query)
    if query.tail_lines is not None:
        files.skip_to_last(query.tail_lines)
    while True:
        is_over = journal.stage() in (
            PodStage.OVER,
            PodStage.VOID,
        )  # before the last read, so that nothing is missed
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
    """Reads the lines of all log files, each line once, in order."""

    def __init__(self, folder: Path, now: Callable[[], Instant]) -> None:
        self._folder = folder
        self._now = now
        self._number = min(self._numbers(), default=1)
        self._offset = 0

    def read(self) -> Iterator[list[bytes]]:
        """Yield the complete lines that were not read yet, until the files have no more for now."""
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
            except FileNotFoundError:  # not there yet, or rotated away meanwhile
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
        """Skip to the last `lines` lines; a line split into pieces counts as one."""
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
    """Return the offsets at which the job's lines begin."""
    starts, offset, goes_on = [], 0, False
    for line in content.split(b"\n")[:-1]:
        if not goes_on:
            starts.append(offset)
        goes_on = line.split(b" ", 3)[2:3] == [_UNENDED]
        offset += len(line) + 1
    return starts


class _Shown:
    """Selects and formats lines as the query asks."""

    def __init__(self, query: LogQuery) -> None:
        self._query = query
        self._left = query.limit_bytes
        self._goes_on: dict[bytes, bool] = {}  # stream -> whether it is within a line
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
