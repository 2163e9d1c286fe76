"""When each lease of an archived segment began and ended, in 24 bytes: a checkpoint of its file.

With it, whoever asks who held what at an instant decodes those leases and no others. `reader` keeps
it for each segment that was read once; the file's digest was found right then.
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
    """Of a closed lease, the two instants; the rest is passed over."""

    spec: _Spec
    status: _Status


_decode = msgspec.json.Decoder(_Line).decode

Stamp = tuple[int, int, int]


def stamp_of(path: Path) -> Stamp:
    """Another one, if the file is: inode, change and size."""
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
        """Where the leases lie in the file that overlap [low, high). One that took no time at all
        is within what begins with it."""
        for place, (start, end) in enumerate(zip(self._starts, self._ends)):
            if start < high and (end > low or end == start >= low):
                yield slice(self._places[place], self._places[place + 1])


def _instant(text: str) -> Instant:
    found = parse_instant(text)
    assert found is not None, text  # its digest is right: it is what was written
    return found
