"""Reads the archive: lines, closed leases and Resolutions. Implements `ports.archive`.

A segment's index bounds the times of its leases: a report over a week opens only the files of that
week. When a file is first read, the start and end of each lease are cached. A later query for one
instant then decodes only the leases open at that instant. Every file is checked before its content
is used, and again if it has changed. The reader never writes, and may run while a compactor adds
segments.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path

from leasehold.core.facts import Lease
from leasehold.core.names import Wire
from leasehold.core.objects.lease import lease_from_wire
from leasehold.core.objects.resolution import resolution_from_wire
from leasehold.core.units import FOREVER, Instant
from leasehold.shell.archive.segments import (
    LEASES,
    LEDGER,
    RESOLUTIONS,
    BadArchive,
    End,
    Index,
    end_of,
    line_of,
    part_path,
    read_file,
    read_indices,
    read_part,
)
from leasehold.shell.archive.times import SegmentTimes, stamp_of

TIMES_MAX = 2_000_000  # maximum number of cached lease times; 48 MB


class Archive:
    """Reads a folder of segments, which need not exist yet. Errors are `BadArchive`. `trouble`
    returns why the folder may be incomplete, if it is a copy of a bucket; "" if it is not."""

    def __init__(self, folder: Path, trouble: Callable[[], str] = lambda: "") -> None:
        self.folder = folder
        self._trouble = trouble
        self._indices: list[Index] = []
        self._names: tuple[str, ...] = ()
        self._times: OrderedDict[str, SegmentTimes] = OrderedDict()  # by file

    def leases(self, *, since: Instant | None, until: Instant | None) -> Iterator[Lease]:
        """Yield the closed leases that overlap [since, until), in the order of the batches that
        closed them."""
        low, high = since or 0, FOREVER if until is None else until
        for index in self.indices():
            if not index.leases or index.leases_to < low or index.leases_from >= high:
                continue
            times = self._times_of(index)
            places = list(times.overlapping(low, high))
            content = read_file(self.folder, index, LEASES, is_known=True) if places else b""
            for place in places:
                lease = lease_from_wire(line_of(content[place]))
                assert lease.end is not None, lease.name
                yield lease

    def learn_one(self) -> bool:
        """Cache the lease times of one more segment, newest first. Return False if all are cached
        or the cache is full. Each call is short."""
        if sum(map(len, self._times.values())) >= TIMES_MAX:
            return False
        for index in reversed(self.indices()):
            if index.leases and index.files[LEASES].name not in self._times:
                self._times_of(index)
                return True
        return False

    def _times_of(self, index: Index) -> SegmentTimes:
        path = part_path(self.folder, index, LEASES)
        known = self._times.get(path.name)
        try:
            stamp = stamp_of(path)
            if known is not None and known.stamp == stamp:
                self._times.move_to_end(path.name)
                return known
        except FileNotFoundError:
            stamp = (0, 0, 0)  # read_file reports the error
        found = SegmentTimes(read_file(self.folder, index, LEASES), stamp)
        self._times[path.name] = found
        while len(self._times) > 1 and sum(map(len, self._times.values())) > TIMES_MAX:
            self._times.popitem(last=False)
        return found

    def leases_from(self) -> Instant:
        return min((each.leases_from for each in self.indices() if each.leases), default=0)

    def lines(self, after: int = 0) -> Iterator[Wire]:
        """Yield the exported lines of all archived batches whose number is above `after`."""
        for index in self.indices():
            if index.last <= after:
                continue
            for line in read_part(self.folder, index, LEDGER):
                seq = line["seq"]
                if isinstance(seq, int) and seq > after:
                    yield line

    def resolutions(self, *, upto: int | None = None) -> Iterator[Wire]:
        """Yield the archived Resolution objects; with `upto`, only those published by batch `upto`
        or an earlier one."""
        for index in self.indices():
            for wire in read_part(self.folder, index, RESOLUTIONS):
                if upto is None or resolution_from_wire(wire).batch <= upto:
                    yield wire

    def end(self) -> End:
        return end_of(self.indices())

    def indices(self) -> list[Index]:
        """Return the indices of all segments. They are cached, and read again when the folder has
        other files."""
        if trouble := self._trouble():
            raise BadArchive(self.folder, f"may lack segments ({trouble})", "leasehold tries again")
        names = tuple(sorted(path.name for path in self.folder.glob("segment-*.json")))
        if names != self._names:
            self._indices, self._names = read_indices(self.folder), names
        return self._indices
