"""Where the objects of a store are kept: in memory, or in a file.

`writes` reads and puts, `store` follows the changes; `adapters.memory` and `adapters.sqlite` each
implement one. Storage knows bytes and versions: it checks nothing and decides nothing.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec

from leasehold.ports.store import EventType

Key = tuple[str, str, str]  # kind, namespace, name
NamespacedName = tuple[str, str]  # namespace, name
NamedBody = tuple[NamespacedName, bytes]

Stored = Callable[[str], Sequence[bytes]]  # all objects of a kind

# Objects are kept as bytes, so that nobody changes what is stored by changing what was read.
encode = msgspec.json.Encoder(order="deterministic").encode
decode = msgspec.json.Decoder(dict[str, object]).decode


def nothing(_: str) -> Sequence[bytes]:
    return ()


@dataclass(frozen=True, slots=True)
class Change:
    """One write: `body` is the object after it or, of a deletion, as it was last."""

    version: int
    event: EventType
    key: Key
    body: bytes


@dataclass(frozen=True, slots=True)
class PastChange:
    """A change as a watch reads it back."""

    version: int
    event: EventType
    body: bytes


class StoredObjects(Protocol):
    """The side that is read; all of it as of the last change that was kept."""

    @property
    def version(self) -> int:
        """Of the last change; 0 before the first one."""
        ...

    def read(self, key: Key) -> bytes | None: ...

    def read_all(self, kind: str, namespace: str | None = None) -> tuple[list[bytes], int]:
        """By namespace and name (or of one namespace), and the version as of which this is all."""
        ...

    def read_page(
        self, kind: str, namespace: str | None, *, after: NamespacedName, count: int
    ) -> tuple[list[NamedBody], int]:
        """At most `count` of `read_all`, those that come after a place; ("", "") is the start."""
        ...

    def scan(self, kind: str, see: Callable[[bytes], None]) -> int:
        """Shows all of `read_all`, one after another, and returns its version."""
        ...

    def next_changes(self, kind: str, after: int, *, count: int) -> list[PastChange]:
        """Some of the first ones later than `after`, at most `count` and none only if there is
        none; raises `WatchExpired` if the first may have been forgotten."""
        ...


class Storage(StoredObjects, Protocol):
    """The side that is written, by one writer at a time."""

    @property
    def created(self) -> int:
        """How many objects were ever added, those since deleted among them."""
        ...

    def put(self, change: Change) -> None:
        """Keeps the object (or its absence), the change and the version together, or raises a
        `StoreError` and keeps nothing. `change.version` is the one after the last."""
        ...
