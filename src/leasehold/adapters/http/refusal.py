"""The exception for a refused request: code, reason and all causes.

Raised by everything that serves requests, `rest` and the query API; `rest.statuses` turns it into
the answer.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RefusalCause:
    """One cause of a refusal; `field` is the path of the wrong field, or ""."""

    reason: str
    message: str
    field: str = ""


class RequestRefused(Exception):  # noqa: N818 - named for the condition
    """Ends a request; the answer is a Kubernetes Status with this code and reason.

    `kind`, `name` and `group` name the object that the request was about, if it was about one
    object.
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
