"""The exact past cost of one envelope, kept without the individual leases.

Stored as a step function of time: how many GPUs were paid for, and how many of them were lent.
`core.world.accounts` sums it from the start of a window, which may move when a Budget is edited;
`core.world.compaction` adds leases that leave the World. Steps at the same instant are merged.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterable

from leasehold.core.facts import Lease, Relation
from leasehold.core.units import GpuMs, Instant

_ROW = 3  # (time since the row before, change in GPUs, change in lent GPUs)


class Charges:
    """The past cost of one envelope as a step function of time. Immutable."""

    __slots__ = ("_after", "_gpus", "_lent", "_lent_after", "_times")

    def __init__(self, steps: Iterable[tuple[Instant, int, int]] = ()) -> None:
        """Build from (instant, change in GPUs, change in lent GPUs), in any order."""
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
        """Return when the first GPU was paid for. There must be at least one step."""
        assert self._times, "an envelope that paid for nothing is not carried"
        return self._times[0]

    def used_since(self, since: Instant) -> tuple[GpuMs, GpuMs]:
        """Return the GPU-ms used from `since` on, and how many of them were lent."""
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
        """Return the charges including these closed leases of the same payer."""
        return Charges([*self._steps(), *(step for lease in leases for step in _steps_of(lease))])

    def to_row(self) -> list[int]:
        """Return the steps as a flat list, in which each instant is the difference from the one
        before."""
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
        """Return, for each step, the GPU-ms from its instant to the last step."""
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
