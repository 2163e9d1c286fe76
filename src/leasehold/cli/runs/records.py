"""An answer of a server as the record that the question has, for whoever reads it by name.

Called by commands that make something of an answer, and by the dashboard that is served here.
"""

from typing import TypeVar

import msgspec

from leasehold.cli.runs.failure import Failure
from leasehold.control.questions.answers.shape import Answer
from leasehold.core.names import Wire

Found = TypeVar("Found", bound=Answer)


def as_record(kind: type[Found], wire: Wire) -> Found:
    """Raises `Failure` where the server's answer lacks what this version reads."""
    try:
        return msgspec.convert(wire, kind)
    except msgspec.ValidationError as error:
        said = f"the server answers as another version does ({error}); use the leasehold it has"
        raise Failure(said) from None
