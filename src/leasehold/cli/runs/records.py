"""Converts the server's answer to a query into the record that the query API has for it.

Called by commands that process an answer, and by the dashboard that `leasehold ui --here` serves.
"""

from typing import TypeVar

import msgspec

from leasehold.app.failure import Failure
from leasehold.control.questions.answers.shape import Answer
from leasehold.core.names import Wire

Found = TypeVar("Found", bound=Answer)


def as_record(kind: type[Found], wire: Wire) -> Found:
    """Convert an answer into a record of type `kind`. Raise `Failure` if it lacks fields that this
    version needs."""
    try:
        return msgspec.convert(wire, kind)
    except msgspec.ValidationError as error:
        said = (
            f"unexpected response from the server ({error}); use the same version of "
            "leasehold as the server"
        )
        raise Failure(said) from None
