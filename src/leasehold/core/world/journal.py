"""Records which nodes and payers have changed since the queue was last walked.

The World notes here each node whose free GPUs change, or will change at another time than before.
It also notes each envelope that pays for other leases, or for another time. A plan that depends on
none of them stands (Q7).
"""

from heapq import heappop, heappush

from leasehold.core.facts import EnvelopeKey, Lease, Record
from leasehold.core.units import FOREVER, Instant


class Changes(Record):
    """The nodes and payers that have changed.

    `is_all`: something has changed that may concern every plan: a node, a Budget or the policy.
    """

    nodes: frozenset[str]
    payers: frozenset[EnvelopeKey]
    is_all: bool


class Journal:
    def __init__(self) -> None:
        self._nodes: set[str] = set()
        self._payers: set[EnvelopeKey] = set()
        self._is_all = True
        self._ends: list[tuple[Instant, str, EnvelopeKey]] = []  # a heap; some no longer apply

    @property
    def is_empty(self) -> bool:
        """Return whether nothing was noted.

        Ends of leases that have passed do not count here: only `take` notes them.
        """
        return not (self._nodes or self._payers or self._is_all)

    def note_lease(self, lease: Lease, known_end: Instant) -> None:
        """Note the node and the payer of a lease that begins, ends, or has another known end."""
        self._nodes.add(lease.node)
        self._payers.add(lease.payer)
        if known_end < FOREVER:
            heappush(self._ends, (known_end, lease.node, lease.payer))

    def note_node(self, name: str) -> None:
        self._nodes.add(name)

    def note_all(self) -> None:
        self._is_all = True

    def take(self, now: Instant) -> Changes:
        """Return the changes noted since the last call, and clear them.

        A known end of a lease that has passed by `now` is a change as well: if the lease is still
        open, it may stay for ever, and plans that count on its GPUs must be made again.
        """
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
