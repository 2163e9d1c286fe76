"""The start and end of each lease in an archived segment, with the lease's place in the file.

They take 24 bytes per lease, so a query for one instant decodes only the leases open at that
instant. `reader` keeps these times for each segment that it has read once and verified.
"""

from array import array
from collections.abc import Iterator
from pathlib import Path

import msgspec

from leasehold.core.units import Instant, parse_instant


class _Began(msgspec.Struct):
    start: str


class _Spec(msgspec.Struct):
    interval: _Began


class _Status(msgspec.Struct, rename="camel"):
    end_time: str


class _Line(msgspec.Struct):
    """The two timestamps of a closed lease; other fields are ignored."""

    spec: _Spec
    status: _Status


_decode = msgspec.json.Decoder(_Line).decode

Stamp = tuple[int, int, int]


def stamp_of(path: Path) -> Stamp:
    """Return inode, modification time and size. If they differ later, the file has changed."""
    about = path.stat()
    return about.st_ino, about.st_mtime_ns, about.st_size


class SegmentTimes:
    def __init__(self, content: bytes, stamp: Stamp) -> None:
        self.stamp = stamp
        self._starts, self._ends, self._places = array("q"), array("q"), array("q")
        at = 0
        for line in content.splitlines(keepends=True):
            found = _decode(line)
            self._starts.append(_instant(found.spec.interval.start))
            self._ends.append(_instant(found.status.end_time))
            self._places.append(at)
            at += len(line)
        self._places.append(at)

    def __len__(self) -> int:
        return len(self._starts)

    def overlapping(self, low: Instant, high: Instant) -> Iterator[slice]:
        """Yield where in the file each lease is that overlaps [low, high). A lease of zero length
        overlaps if it lies in the range or starts at `low`."""
        for place, (start, end) in enumerate(zip(self._starts, self._ends)):
            if start < high and (end > low or end == start >= low):
                yield slice(self._places[place], self._places[place + 1])


def _instant(text: str) -> Instant:
    found = parse_instant(text)
    assert found is not None, text  # cannot fail: the file's digest was checked
    return found
