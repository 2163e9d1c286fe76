"""Reads workload traces: Standard Workload Format, and CSV with a column map; also gzipped.

Every value that cannot be read is reported in a `BadFile`, with its line. Rows without a GPU or
without a duration are counted and left out.
"""

import csv
import gzip
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from math import ceil
from pathlib import Path
from typing import TextIO

from leasehold.core.facts import Record
from leasehold.core.objects.owners import OWNER_REMEDY, is_owner
from leasehold.core.objects.problems import shown
from leasehold.core.objects.readers import GPUS_MAX
from leasehold.core.units import DAY, SECOND, SPAN_MAX, Instant, Millis, format_span
from leasehold.sim.replay.jobs import (
    INSTANT_MAX,
    NEVER_RAN,
    NO_GPU,
    ROUNDED,
    Job,
    Mistakes,
    Workload,
    bad_file,
)

PARTS = ("submit", "duration", "start", "end", "gpus", "owner", "limit", "flavor")

# Column names of published traces. The first layout whose columns are all present is used.
LAYOUTS: tuple[Mapping[str, str], ...] = (
    {"submit": "submit_time", "duration": "duration_s", "gpus": "num_gpus", "owner": "vc"},
    {"submit": "timestamp", "duration": "duration", "gpus": "num_gpus", "owner": "cluster"},
    {
        "submit": "creation_time",
        "start": "scheduled_time",
        "end": "deletion_time",
        "gpus": "num_gpu",
    },
)

# The eighteen fields of a line in Standard Workload Format, in order.
SWF_FIELDS = (
    "job",
    "submit",
    "wait",
    "run",
    "procs",
    "cpu",
    "memory",
    "requested_procs",
    "requested_time",
    "requested_memory",
    "status",
    "user",
    "group",
    "executable",
    "queue",
    "partition",
    "preceding",
    "think",
)
_SWF_LAYOUT = {
    "submit": "submit",
    "duration": "run",
    "gpus": "procs",
    "owner": "group",
    "limit": "requested_time",
}
_UNKNOWN = "-1"  # missing value in SWF
_NUMBER_MAX = Decimal(10) ** 12
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class TraceFormat(Record):
    """How to read a trace: which column has what, which rows count, and when its times begin."""

    columns: tuple[tuple[str, str], ...] = ()  # part -> column; empty: from the heading
    owner: str = "{}"  # `{}` is replaced by the owner column
    teams: tuple[str, ...] = ()  # only rows with one of these in the owner column
    epoch: Instant = 0  # origin of submissions given in seconds


def read_trace(path: Path, reading: TraceFormat) -> Workload:
    """Read the jobs of a file, in order of submission; raise `BadFile`."""
    with opened(path) as file:
        first = _first_line(file, str(path))
        if first.startswith(";") or _is_swf(first):
            rows = _swf_rows(file, str(path))
            origin = _origin(file)
            layout: Mapping[str, str] = {**_SWF_LAYOUT, **dict(reading.columns)}
            _check_columns(layout, SWF_FIELDS, f"{path}", 1)
        else:
            reader = csv.reader(file)
            heading = [name.strip() for name in next(reader)]
            layout = _layout_of(heading, reading, str(path))
            rows = _csv_rows(reader, heading, str(path))
            origin = None
        return _Reader(path, reading, layout, reading.epoch if origin is None else origin).read(
            rows
        )


@contextmanager
def opened(path: Path) -> Iterator[TextIO]:
    """Open a file as text, and decompress it if it is gzipped. Errors become `BadFile`."""
    place = str(path)
    try:
        with path.open("rb") as raw:
            is_packed = raw.read(2) == b"\x1f\x8b"
        if is_packed:
            with gzip.open(path, "rt", encoding="utf-8-sig", newline="") as file:
                yield file
        else:
            with path.open(encoding="utf-8-sig", newline="") as file:
                yield file
    except FileNotFoundError:
        raise bad_file(place, 1, "no such file", "name a trace that exists") from None
    except IsADirectoryError:
        raise bad_file(place, 1, "a directory", "name a file") from None
    except (gzip.BadGzipFile, zlib.error, EOFError) as error:
        raise bad_file(place, 1, f"not a whole gzip file ({error})", "fetch it again") from None
    except UnicodeDecodeError:
        raise bad_file(place, 1, "not UTF-8", "save the trace as UTF-8") from None
    except csv.Error as error:
        raise bad_file(place, 1, f"not CSV ({error})", "use rows with commas") from None
    except OSError as error:
        said = error.strerror or str(error)
        raise bad_file(place, 1, said, "name a file that can be read") from None


def _first_line(file: TextIO, path: str) -> str:
    for line in file:
        if line.strip():
            file.seek(0)
            return line.strip()
    raise bad_file(path, 1, "an empty file", "name a trace with at least one job")


def _is_swf(line: str) -> bool:
    return "," not in line and len(line.split()) == len(SWF_FIELDS)


Row = tuple[int, Mapping[str, str]]


def _csv_rows(reader: Iterator[list[str]], heading: list[str], path: str) -> Iterator[Row]:
    mistakes = Mistakes(path)
    # The heading is line 1; a quoted cell may span several lines.
    for cells in reader:
        line: int = reader.line_num  # type: ignore[attr-defined]
        if not any(cells):
            continue
        if len(cells) != len(heading):
            remedy = f"use {len(heading)} cells, as in the heading"
            mistakes.note(line, f"{len(cells)} cells", remedy)
            continue
        yield line, dict(zip(heading, cells))
    mistakes.settle()


def _swf_rows(file: TextIO, path: str) -> Iterator[Row]:
    mistakes = Mistakes(path)
    for number, line in enumerate(file, start=1):
        cells = line.split()
        if not cells or line.startswith(";"):
            continue
        if len(cells) != len(SWF_FIELDS):
            remedy = "a line of Standard Workload Format has 18 numbers; complete or remove it"
            mistakes.note(number, f"{len(cells)} fields", remedy)
            continue
        row = {name: "" if cell == _UNKNOWN else cell for name, cell in zip(SWF_FIELDS, cells)}
        row["procs"] = row["procs"] or row["requested_procs"]
        yield number, row
    mistakes.settle()


def _origin(file: TextIO) -> Instant | None:
    """Return the time in the comment `; UnixStartTime: N` of an SWF file; None if it has no such
    comment."""
    found = None
    for line in file:
        if not line.startswith(";"):
            break
        name, _, value = line.lstrip("; ").partition(":")
        if name.strip() == "UnixStartTime" and value.strip().isdecimal():
            found = int(value) * SECOND
    file.seek(0)
    return found


def _layout_of(heading: list[str], reading: TraceFormat, path: str) -> Mapping[str, str]:
    """Return which column has which part of a job. Raise `BadFile` if a required part has no
    column.

    Example: {"submit": "submit_time", "gpus": "num_gpus", "duration": "duration_s"}
    """
    own = {part: part for part in PARTS if part in heading}
    if reading.columns:
        layout: Mapping[str, str] = {**own, **dict(reading.columns)}
    else:
        fitting = (each for each in LAYOUTS if set(each.values()) <= set(heading))
        layout = next(fitting, own)
    _check_columns(layout, heading, path, 1)
    has_length = "duration" in layout or {"start", "end"} <= set(layout)
    missing = [part for part in ("submit", "gpus") if part not in layout]
    missing += [] if has_length else ["duration (or start and end)"]
    if missing:
        remedy = (
            "name the columns with --columns, such as --columns "
            f"{missing[0].split()[0]}={heading[0] or 'NAME'}; the file has {', '.join(heading)}"
        )
        raise bad_file(path, 1, f"no column is known for {', '.join(missing)}", remedy)
    return layout


def _check_columns(layout: Mapping[str, str], known: Iterable[str], path: str, line: int) -> None:
    names = list(known)
    for part, name in layout.items():
        if name not in names:
            remedy = f"name one of: {', '.join(names)}"
            raise bad_file(path, line, f"--columns {part}={name}: no such column", remedy)


class _Reader:
    """Turns the rows of a trace into jobs."""

    def __init__(
        self, path: Path, reading: TraceFormat, layout: Mapping[str, str], origin: Instant
    ) -> None:
        self._mistakes = Mistakes(str(path))
        self._workload = Workload(path=str(path))
        self._reading = reading
        self._layout = layout
        self._origin = origin

    def read(self, rows: Iterator[Row]) -> Workload:
        for line, row in rows:
            self._take(line, row)
        self._mistakes.settle()
        self._workload.sort()
        return self._workload

    def _take(self, line: int, row: Mapping[str, str]) -> None:
        team = self._cell(row, "owner")
        if self._reading.teams and team not in self._reading.teams:
            return
        remarks = self._workload.remarks
        try:
            gpus = self._gpus(row)
            duration = self._duration(row)
            if not gpus or not duration:
                remarks[NEVER_RAN if gpus else NO_GPU] += 1
                return
            limit = self._cell(row, "limit")
            job = Job(
                line=line,
                name=f"job-{line}",
                owner=self._owner(team),
                gpus=gpus,
                submit=self._instant(row, "submit"),
                duration=duration,
                limit=(_bounded(_span(limit)) or None) if limit else None,
                flavor=self._cell(row, "flavor"),
            )
        except _Unreadable as wrong:
            self._mistakes.note(line, wrong.value, wrong.remedy)
            return
        self._workload.jobs.append(job)

    def _cell(self, row: Mapping[str, str], part: str) -> str:
        name = self._layout.get(part)
        return "" if name is None else row[name].strip()

    def _owner(self, team: str) -> str:
        owner = self._reading.owner.replace("{}", team)
        if not is_owner(owner):
            remedy = OWNER_REMEDY if team else "name the owner of all jobs with --owner NAME"
            raise _Unreadable(f"the owner {shown(owner)}", remedy)
        return owner

    def _gpus(self, row: Mapping[str, str]) -> int:
        text = self._cell(row, "gpus")
        number = _number(text or "0", "a number of GPUs")
        if number > GPUS_MAX:
            raise _Unreadable(shown(text), f"use at most {GPUS_MAX} GPUs")
        whole = ceil(number)
        self._workload.remarks[ROUNDED] += whole != number
        return max(0, whole)

    def _duration(self, row: Mapping[str, str]) -> Millis:
        """Return how long the job ran; 0 if it never ran or if that is unknown."""
        if "duration" in self._layout:
            text = self._cell(row, "duration")
            return _bounded(_span(text)) if text else 0
        if not (self._cell(row, "start") and self._cell(row, "end")):
            return 0
        return _bounded(self._instant(row, "end") - self._instant(row, "start"))

    def _instant(self, row: Mapping[str, str], part: str) -> Instant:
        text = self._cell(row, part)
        at = _moment(text)
        if at is None:
            at = self._origin + _span(text, "a time or a number of seconds")
        if not 0 <= at < INSTANT_MAX:
            raise _Unreadable(shown(text), "use a time between 1970 and 3000")
        return at


class _Unreadable(Exception):  # noqa: N818 - named for the condition
    def __init__(self, value: str, remedy: str) -> None:
        super().__init__(value, remedy)
        self.value = value
        self.remedy = remedy


def _number(text: str, what: str) -> Decimal:
    try:
        number = Decimal(text)
    except InvalidOperation:
        raise _Unreadable(shown(text), f"use {what}") from None
    if not number.is_finite() or abs(number) > _NUMBER_MAX:
        raise _Unreadable(shown(text), f"use {what}")
    return number


def _span(text: str, what: str = "a number of seconds") -> Millis:
    return int(_number(text, what) * SECOND)


def _bounded(span: Millis) -> Millis:
    """Return the duration, or 0 if it is negative. Raise `_Unreadable` if it exceeds what a Run may
    declare."""
    if span > SPAN_MAX:
        raise _Unreadable(format_span(span), f"use at most {SPAN_MAX // DAY} days")
    return max(0, span)


def _moment(text: str) -> Instant | None:
    """Parse a time such as `2017-10-01 00:00:00`, with or without a zone (default UTC). Return None
    if the text is a plain number."""
    try:
        Decimal(text)
    except InvalidOperation:
        pass
    else:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise _Unreadable(
            shown(text), "use a time such as 2017-10-01T00:00:00Z, or a number of seconds"
        ) from None
    at = found if found.tzinfo is not None else found.replace(tzinfo=UTC)
    return (at - _EPOCH) // timedelta(milliseconds=1)
