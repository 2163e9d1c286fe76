"""Stored objects as facts, one by one: what cannot be read is named, and the rest is read.

Called by `recover` and by the loop. Admission lets nothing in that could not be read, so such an
object was changed in the store, or written by a version with other rules.
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
    """An object of the ledger's own is not what was written: there is no going on without it."""


class Unreadable(Record):
    """An object of somebody's that cannot be read, and why."""

    kind: str
    obj: Wire
    why: str
    error: Exception
    is_tried_again: bool = False  # the API server refuses its pods, and may think better of it

    @property
    def key(self) -> str:
        return key_of(self.obj)

    def __str__(self) -> str:
        return f"{self.kind} {self.key} cannot be read: {self.why}"


def key_of(obj: Wire) -> str:
    """`namespace/name`, or the name of what is in no namespace."""
    metadata = part(obj, "metadata")
    namespace, name = text_at(metadata, "namespace"), text_at(metadata, "name")
    return f"{namespace}/{name}" if namespace else name


def readable(
    kind: str, objects: Iterator[Wire], read: Callable[[Wire], T], bad: list[Unreadable]
) -> Iterator[T]:
    """The facts of all that can be read; the others go to `bad`."""
    for obj in objects:
        try:
            fact = read(obj)
        except Exception as error:
            bad.append(Unreadable(kind=kind, obj=obj, why=reason_of(error), error=error))
            continue
        yield fact


def must_read(kind: str, obj: Wire, read: Callable[[Wire], T]) -> T:
    """One of the ledger's own; raises `Malformed`."""
    try:
        return read(obj)
    except Exception as error:
        raise Malformed(f"{kind} {key_of(obj)} cannot be read: {reason_of(error)}") from error
