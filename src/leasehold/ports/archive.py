"""The archive port: closed leases and Resolutions that compaction moved out of the store.

Implemented by the archive adapters. Reports read the leases of the store and of the archive
together. A lease is normally in only one of the two; if it is in both, both copies are identical.
"""

from collections.abc import Iterable
from typing import Protocol, runtime_checkable

from leasehold.core.facts import Lease


class Mirror(Protocol):
    """A remote copy of the archive folder, such as a bucket.

    `trouble` is the reason why the folder may be incomplete; "" if it is complete.
    """

    @property
    def trouble(self) -> str: ...

    async def sync(self) -> None:
        """Copy files that one side lacks: from the folder to the remote copy, and back.

        Raises `OSError` on failure; then the caller must not rely on any copy, and the next call
        looks for missing files again.
        """
        ...


class ArchivedLeases(Protocol):
    def leases(self, *, since: int | None, until: int | None) -> Iterable[Lease]:
        """Return every archived lease that overlaps [since, until), in ms UTC; None means no
        bound."""
        ...


@runtime_checkable
class ArchivedSince(Protocol):
    """An archive that knows a lower bound of its leases' starts without reading the leases."""

    def leases_from(self) -> int:
        """Return an instant before which no archived lease starts; 0 if there are no leases."""
        ...


@runtime_checkable
class ArchivedResolutions(Protocol):
    """An archive that also keeps Resolutions: the records of why leases were preempted."""

    def resolutions(self, *, upto: int | None = None) -> Iterable[dict[str, object]]:
        """Return Resolution objects of batches up to and including `upto`; None: of all batches."""
        ...
