"""A request that is refused: the code, the reason and every cause, as the caller will read them.

Raised by whatever serves a request, `rest` and the query API alike; `rest.statuses` writes it down.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RefusalCause:
    """One reason among several; `field` is a JSON path, or empty."""

    reason: str
    message: str
    field: str = ""


class RequestRefused(Exception):  # noqa: N818 - it says what became of the request
    """A request that gets a typed Status instead of what it asked for.

    Raised anywhere in the facade, and by whoever answers for it. `kind`, `name` and `group`
    say what it was about, where that is one object.
    """

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        causes: Sequence[RefusalCause] = (),
        *,
        kind: str = "",
        name: str = "",
        group: str = "",
    ) -> None:
        super().__init__(code, reason, message)
        self.code = code
        self.reason = reason
        self.message = message
        self.causes = tuple(causes)
        self.kind = kind
        self.name = name
        self.group = group

    def __str__(self) -> str:
        return f"{self.code} {self.reason}: {self.message}"
