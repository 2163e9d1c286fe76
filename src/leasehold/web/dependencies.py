"""The dependencies of the pages, in one record filled in by the composition root."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from starlette.requests import Request

from leasehold.control.questions.answers.shape import Answer
from leasehold.web.news import PageNews
from leasehold.web.sheet import Sheet


class Visitor(Protocol):
    """The visitor of a page. What it may see is checked where questions are answered."""

    @property
    def user(self) -> str: ...


class Reply(Protocol):
    @property
    def now(self) -> int: ...

    @property
    def found(self) -> Answer: ...


class NotShown(Exception):  # noqa: N818 - named for the condition
    """Ends a request for a page with an HTTP status and a message that gives the reason."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


@dataclass(frozen=True, slots=True)
class BatchLine:
    """A batch of the chain; `text` is the canonical JSON that its digest covers."""

    seq: int
    digest: str
    text: str


@dataclass(frozen=True, slots=True)
class Chain:
    """Some batches of the chain, in order. `before` is the digest that the first of them
    follows."""

    before: str
    lines: Sequence[BatchLine]


Ask = Callable[[Visitor, str, Mapping[str, str]], Awaitable[Reply]]


class Authentication(Protocol):
    """Authenticates visitors; implemented in `authentication`."""

    def visitor(self, request: Request) -> tuple[str, Visitor]:
        """Return the visitor, and a key by which `is_welcome` recognises the visitor later. Raise
        `NotShown` if the request has no valid identity."""
        ...

    def is_welcome(self, whose: str) -> bool:
        """Return whether the visitor with this key is still signed in."""
        ...


@dataclass(frozen=True, slots=True)
class PageDependencies:
    """What the pages need.

    `ask` answers (visitor, question, parameters), or raises `NotShown`. `chain` returns the batches
    after a given number, up to a maximum. `logs` returns the end of a pod's output. `parquet`
    encodes a sheet; None if this is not supported here."""

    ask: Ask
    chain: Callable[[Visitor, int, int], Awaitable[Chain]]
    logs: Callable[[Visitor, str, str], Awaitable[str]]
    news: PageNews
    door: Authentication
    parquet: Callable[[Sheet], Awaitable[bytes]] | None = None
