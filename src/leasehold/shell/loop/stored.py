"""Reads stored objects one by one; an unreadable one is reported and does not stop the others.

Called by `recover` and by the loop. Admission rejects unreadable objects. One in the store was
therefore changed past admission, or written by a version with other rules.
"""

from collections.abc import Callable, Iterator
from typing import TypeVar

import msgspec

from leasehold.adapters.containment import reason_of
from leasehold.core.facts import Record
from leasehold.core.names import Wire
from leasehold.core.objects.wire import part, text_at

T = TypeVar("T")


class Malformed(msgspec.ValidationError):
    """An object of the ledger itself cannot be read: recovery cannot continue."""


class Unreadable(Record):
    """A user's object that cannot be read, or whose pods the API server refuses, and the reason."""

    kind: str
    obj: Wire
    why: str
    error: Exception
    is_tried_again: bool = False  # the API server rejected its pods and is asked again

    @property
    def key(self) -> str:
        return key_of(self.obj)

    def __str__(self) -> str:
        return f"{self.kind} {self.key} cannot be read: {self.why}"


def key_of(obj: Wire) -> str:
    """Return an object's key: `namespace/name`, or only its name if it is cluster-scoped."""
    metadata = part(obj, "metadata")
    namespace, name = text_at(metadata, "namespace"), text_at(metadata, "name")
    return f"{namespace}/{name}" if namespace else name


def readable(
    kind: str, objects: Iterator[Wire], read: Callable[[Wire], T], bad: list[Unreadable]
) -> Iterator[T]:
    """Yield the objects that `read` can read, decoded; add the others to `bad`."""
    for obj in objects:
        try:
            fact = read(obj)
        except Exception as error:
            bad.append(Unreadable(kind=kind, obj=obj, why=reason_of(error), error=error))
            continue
        yield fact


def must_read(kind: str, obj: Wire, read: Callable[[Wire], T]) -> T:
    """Decode an object of the ledger itself with `read`; raise `Malformed` if that fails."""
    try:
        return read(obj)
    except Exception as error:
        raise Malformed(f"{kind} {key_of(obj)} cannot be read: {reason_of(error)}") from error
