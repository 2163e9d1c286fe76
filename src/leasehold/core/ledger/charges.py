"""What leases of the past cost one envelope, exactly, without the leases themselves.

A step function of time: so many GPUs were paid for from here to there, and so many of them were
lent. `core.world.accounts` asks it for the sum since the begin of a window, wherever an edit moves
that; `core.world.compaction` adds the leases that leave the World. Two steps at an instant are one.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterable

from leasehold.core.facts import Lease, Relation
from leasehold.core.units import GpuMs, Instant

_ROW = 3  # an instant after the one before it, GPUs more or less, lent GPUs more or less


class Charges:
    """Never changed once made."""

    __slots__ = ("_after", "_gpus", "_lent", "_lent_after", "_times")

    def __init__(self, steps: Iterable[tuple[Instant, int, int]] = ()) -> None:
        """`steps` are (instant, GPUs more or less from then on, of them lent), in any order."""
        changes: dict[Instant, list[int]] = {}
        for at, gpus, lent in steps:
            known = changes.setdefault(at, [0, 0])
            known[0] += gpus
            known[1] += lent
        self._times = array("q")
        self._gpus = array("q")  # from this instant to the next one
        self._lent = array("q")
        level = lent_level = 0
        for at in sorted(changes):
            gpus, lent = changes[at]
            if gpus or lent:
                level += gpus
                lent_level += lent
                self._times.append(at)
                self._gpus.append(level)
                self._lent.append(lent_level)
        assert level == lent_level == 0, "a lease of the past has an end"
        self._after = self._sums(self._gpus)
        self._lent_after = self._sums(self._lent)

    @property
    def begin(self) -> Instant:
        """When the first of it was spent; there is some."""
        assert self._times, "an envelope that paid for nothing is not carried"
        return self._times[0]

    def used_since(self, since: Instant) -> tuple[GpuMs, GpuMs]:
        """GPU-milliseconds from an instant on, and how many of them were lent."""
        place = bisect_right(self._times, since)
        if place == len(self._times):
            return 0, 0
        used, lent = self._after[place], self._lent_after[place]
        if place:
            span = self._times[place] - since
            used += self._gpus[place - 1] * span
            lent += self._lent[place - 1] * span
        return used, lent

    def with_leases(self, leases: Iterable[Lease]) -> "Charges":
        """These and closed leases of the same payer."""
        return Charges([*self._steps(), *(step for lease in leases for step in _steps_of(lease))])

    def to_row(self) -> list[int]:
        """Flat and small: instants as what has passed since the one before."""
        row: list[int] = []
        before = 0
        for at, gpus, lent in self._steps():
            row += (at - before, gpus, lent)
            before = at
        return row

    @classmethod
    def from_row(cls, row: list[int]) -> "Charges":
        steps = []
        at = 0
        for place in range(0, len(row), _ROW):
            at += row[place]
            steps.append((at, row[place + 1], row[place + 2]))
        return cls(steps)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Charges) and list(self._steps()) == list(other._steps())

    __hash__ = None  # type: ignore[assignment]

    def __len__(self) -> int:
        return len(self._times)

    def _steps(self) -> Iterable[tuple[Instant, int, int]]:
        level = lent_level = 0
        for at, gpus, lent in zip(self._times, self._gpus, self._lent, strict=True):
            yield at, gpus - level, lent - lent_level
            level, lent_level = gpus, lent

    def _sums(self, levels: "array[int]") -> "array[int]":
        """From each instant to the end."""
        sums = array("q", bytes(8 * len(levels)))
        for place in range(len(levels) - 2, -1, -1):
            span = self._times[place + 1] - self._times[place]
            sums[place] = sums[place + 1] + levels[place] * span
        return sums


def _steps_of(lease: Lease) -> tuple[tuple[Instant, int, int], ...]:
    assert lease.end is not None, lease.name
    gpus = lease.gpus
    lent = gpus if lease.relation is Relation.BORROWED else 0
    return (lease.start, gpus, lent), (lease.end, -gpus, -lent)
