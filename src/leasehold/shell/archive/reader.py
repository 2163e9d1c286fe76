"""Reads the archive: its lines, the leases it closed, its Resolutions. Implements `ports.archive`.

Segments say in their index from when to when their leases lasted: a report over a week opens the
files of that week and no others. Every file is checked before its content is used. It never
writes, and may be used while a compactor adds segments.
"""

from collections.abc import Iterator
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
    End,
    Index,
    end_of,
    read_indices,
    read_part,
)


class Archive:
    """A folder of segments; it need not exist yet. What goes wrong is a `BadArchive`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._indices: list[Index] = []
        self._names: tuple[str, ...] = ()

    def leases(self, *, since: Instant | None, until: Instant | None) -> Iterator[Lease]:
        """Closed leases that overlap [since, until), by the batch that closed them."""
        low, high = since or 0, FOREVER if until is None else until
        for index in self.indices():
            if not index.leases or index.leases_to < low or index.leases_from >= high:
                continue
            for wire in read_part(self.folder, index, LEASES):
                lease = lease_from_wire(wire)
                assert lease.end is not None, lease.name
                # One that took no time at all is within what begins with it.
                if lease.start < high and (lease.end > low or lease.end == lease.start >= low):
                    yield lease

    def lines(self, after: int = 0) -> Iterator[Wire]:
        """The exported lines of all batches after this one."""
        for index in self.indices():
            if index.last <= after:
                continue
            for line in read_part(self.folder, index, LEDGER):
                seq = line["seq"]
                if isinstance(seq, int) and seq > after:
                    yield line

    def resolutions(self, *, upto: int | None = None) -> Iterator[Wire]:
        """As objects; those that batches up to this one published."""
        for index in self.indices():
            for wire in read_part(self.folder, index, RESOLUTIONS):
                if upto is None or resolution_from_wire(wire).batch <= upto:
                    yield wire

    def end(self) -> End:
        return end_of(self.indices())

    def indices(self) -> list[Index]:
        """All there are now; read again only when files were added."""
        names = tuple(sorted(path.name for path in self.folder.glob("segment-*.json")))
        if names != self._names:
            self._indices, self._names = read_indices(self.folder), names
        return self._indices
