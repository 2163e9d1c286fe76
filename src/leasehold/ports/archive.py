"""Closed leases that were compacted out of the store, as `shell` sees them.

Implemented by whatever keeps the archive. Reports and questions about the past read live leases
and these together; a lease is in one of the two, and where it is in both it is the same lease.
"""

from collections.abc import Iterable
from typing import Protocol

from leasehold.core.facts import Lease


class ArchivedLeases(Protocol):
    def leases(self, *, since: int | None, until: int | None) -> Iterable[Lease]:
        """Every archived lease that overlaps [since, until) in milliseconds UTC; None is open."""
        ...
