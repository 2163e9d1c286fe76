"""What has changed since the queue was last walked: nodes and payers.

The World notes here each node whose room changed, or will change at another time, and each envelope
that pays for other leases or for another time. A plan that rests on neither stands (Q7).
"""

from heapq import heappop, heappush

from leasehold.core.facts import EnvelopeKey, Lease, Record
from leasehold.core.units import FOREVER, Instant


class Changes(Record):
    """`is_all`: more than could be named, such as a node, a Budget or the policy."""

    nodes: frozenset[str]
    payers: frozenset[EnvelopeKey]
    is_all: bool


class Journal:
    def __init__(self) -> None:
        self._nodes: set[str] = set()
        self._payers: set[EnvelopeKey] = set()
        self._is_all = True
        self._ends: list[tuple[Instant, str, EnvelopeKey]] = []  # a heap; ends may be called off

    @property
    def is_empty(self) -> bool:
        """Return whether nothing was noted. The passing of time is noted by `take` alone."""
        return not (self._nodes or self._payers or self._is_all)

    def note_lease(self, lease: Lease, known_end: Instant) -> None:
        """Note a lease that begins, ends, or has another known end."""
        self._nodes.add(lease.node)
        self._payers.add(lease.payer)
        if known_end < FOREVER:
            heappush(self._ends, (known_end, lease.node, lease.payer))

    def note_node(self, name: str) -> None:
        self._nodes.add(name)

    def note_all(self) -> None:
        self._is_all = True

    def take(self, now: Instant) -> Changes:
        """Return what was noted, and begin again. A lease that is still open at its known end may
        stay for ever, so a known end that has passed is a change as well."""
        while self._ends and self._ends[0][0] <= now:
            _, node, payer = heappop(self._ends)
            self._nodes.add(node)
            self._payers.add(payer)
        found = Changes(
            nodes=frozenset(self._nodes), payers=frozenset(self._payers), is_all=self._is_all
        )
        self._nodes.clear()
        self._payers.clear()
        self._is_all = False
        return found
