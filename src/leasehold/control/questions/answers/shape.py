"""The base types of all answers, and their JSON form."""

from typing import TypedDict

import msgspec

from leasehold.core.facts import Record
from leasehold.core.names import Wire as Wire  # re-exported: what `wire` returns


class Answer(Record, rename="camel"):
    """The base of every answer and of each part of an answer."""


class GpuTime(TypedDict):
    """The two fields that show GPU-time: exact GPU-ms, and readable hours."""

    gpu_ms: int
    gpu_hours: str


class GpuAmount(Answer):
    gpu_ms: int
    gpu_hours: str


def wire(answer: Answer) -> Wire:
    """Convert to JSON values; the fields keep their order."""
    found = msgspec.to_builtins(answer)
    assert isinstance(found, dict), "a record becomes an object"
    return found
