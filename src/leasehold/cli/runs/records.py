"""Converts a server's answer into the record of its question.

Called by commands that process an answer, and by the locally served dashboard.
"""

from typing import TypeVar

import msgspec

from leasehold.app.failure import Failure
from leasehold.control.questions.answers.shape import Answer
from leasehold.core.names import Wire

Found = TypeVar("Found", bound=Answer)


def as_record(kind: type[Found], wire: Wire) -> Found:
    """Convert; raises `Failure` if the answer lacks fields that this version needs."""
    try:
        return msgspec.convert(wire, kind)
    except msgspec.ValidationError as error:
        said = (
            f"unexpected response from the server ({error}); use the same version of "
            "leasehold as the server"
        )
        raise Failure(said) from None
