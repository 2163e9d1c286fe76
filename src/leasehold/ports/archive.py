"""What was compacted out of the store, as `shell` sees it: closed leases, and Resolutions.

Implemented by whatever keeps the archive. Reports and questions about the past read live leases
and these together; a lease is in one of the two, and where it is in both it is the same lease.
"""

from collections.abc import Iterable
from typing import Protocol, runtime_checkable

from leasehold.core.facts import Lease


class Mirror(Protocol):
    """What an archive's folder is kept in step with, such as a bucket. `trouble` says why the
    folder may lack what was archived; empty where it does not."""

    @property
    def trouble(self) -> str: ...

    async def sync(self) -> None:
        """Afterwards both have all that either had; raises `OSError`, and then nothing counts."""
        ...


class ArchivedLeases(Protocol):
    def leases(self, *, since: int | None, until: int | None) -> Iterable[Lease]:
        """Every archived lease that overlaps [since, until) in milliseconds UTC; None is open."""
        ...


@runtime_checkable
class ArchivedSince(Protocol):
    """An archive that knows, without being read, how far back its leases reach."""

    def leases_from(self) -> int:
        """No lease in it began earlier; 0 if it has none."""
        ...


@runtime_checkable
class ArchivedResolutions(Protocol):
    """An archive that also keeps why leases were cut."""

    def resolutions(self, *, upto: int | None = None) -> Iterable[dict[str, object]]:
        """The objects, those of batches up to this one; None: all of them."""
        ...
