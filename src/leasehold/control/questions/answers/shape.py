"""What every answer is made of, and how it is written as JSON."""

from typing import TypedDict

import msgspec

from leasehold.core.facts import Record
from leasehold.core.names import Wire as Wire  # what `wire` makes, for whoever only knows answers


class Answer(Record, rename="camel"):
    """The base of every answer and of each part of one."""


class GpuTime(TypedDict):
    """Two fields of many records: exact for machines, in hours for people."""

    gpu_ms: int
    gpu_hours: str


class GpuAmount(Answer):
    gpu_ms: int
    gpu_hours: str


def wire(answer: Answer) -> Wire:
    """As JSON values, field by field in their order."""
    found = msgspec.to_builtins(answer)
    assert isinstance(found, dict), "a record becomes an object"
    return found
