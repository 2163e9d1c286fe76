"""The interface of object storage, in memory or in a file.

The module `writes` uses it to read and write objects; the module `store` uses it to read changes
for watches. Implemented in `adapters.memory` and `adapters.sqlite`. Storage handles bytes and
versions and checks nothing.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec

from leasehold.ports.store import EventType

Key = tuple[str, str, str]  # kind, namespace, name
NamespacedName = tuple[str, str]  # namespace, name
NamedBody = tuple[NamespacedName, bytes]

Stored = Callable[[str], Sequence[bytes]]  # returns all objects of a kind

# Stored as bytes, so that changing a read object does not change the stored one.
encode = msgspec.json.Encoder(order="deterministic").encode
decode = msgspec.json.Decoder(dict[str, object]).decode


def nothing(_: str) -> Sequence[bytes]:
    return ()


@dataclass(frozen=True, slots=True)
class Change:
    """One write; `body` is the object after the write, or for a deletion its last state."""

    version: int
    event: EventType
    key: Key
    body: bytes


@dataclass(frozen=True, slots=True)
class PastChange:
    """A change as a watch reads it later."""

    version: int
    event: EventType
    body: bytes


class StoredObjects(Protocol):
    """The reading side; every read reflects the last stored change."""

    @property
    def version(self) -> int:
        """The version of the last change; 0 before the first."""
        ...

    def read(self, key: Key) -> bytes | None: ...

    def read_all(self, kind: str, namespace: str | None = None) -> tuple[list[bytes], int]:
        """Return all objects of a kind, or those of one namespace, sorted by namespace and name,
        and their version."""
        ...

    def read_page(
        self, kind: str, namespace: str | None, *, after: NamespacedName, count: int
    ) -> tuple[list[NamedBody], int]:
        """Return at most `count` objects of `read_all` that follow (namespace, name) `after`, and
        their version; ("", "") is the start."""
        ...

    def scan(self, kind: str, see: Callable[[bytes], None]) -> int:
        """Pass the objects of `read_all` to `see` one by one; return their version."""
        ...

    def next_changes(self, kind: str, after: int, *, count: int) -> list[PastChange]:
        """Return at most `count` changes that follow version `after`; [] only if there are none.
        Raise `WatchExpired` if the first of them may have been dropped."""
        ...


class Storage(StoredObjects, Protocol):
    """The writing side; one writer at a time."""

    @property
    def created(self) -> int:
        """The number of objects ever created, including deleted ones."""
        ...

    def put(self, change: Change) -> None:
        """Store an object (or its deletion), the change and the new version together. If a
        `StoreError` is raised, nothing was stored. `change.version` must be the next version."""
        ...
