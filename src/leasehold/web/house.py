"""What the pages stand on, as one record that the composition root fills in."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from starlette.requests import Request

from leasehold.control.questions.answers.shape import Answer
from leasehold.web.news import PageNews
from leasehold.web.sheet import Sheet


class Visitor(Protocol):
    """Whoever looks; what it may see, the answers know."""

    @property
    def user(self) -> str: ...


class Reply(Protocol):
    @property
    def now(self) -> int: ...

    @property
    def found(self) -> Answer: ...


class NotShown(Exception):  # noqa: N818 - it says what became of the page
    """Why there is no page, in a sentence, with the status of HTTP."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


@dataclass(frozen=True, slots=True)
class BatchLine:
    """One batch as the chain has it: `text` is the canonical JSON that its digest is of."""

    seq: int
    digest: str
    text: str


@dataclass(frozen=True, slots=True)
class Chain:
    """Batches in order; `before` is the digest that the first of them follows."""

    before: str
    lines: Sequence[BatchLine]


Ask = Callable[[Visitor, str, Mapping[str, str]], Awaitable[Reply]]


class Door(Protocol):
    """How visitors come in; see `doors`."""

    def visitor(self, request: Request) -> tuple[str, Visitor]:
        """Who that is, and a name that tells visitors apart; raises `NotShown`."""
        ...

    def is_welcome(self, whose: str) -> bool:
        """Whether a visitor of this name may still be here."""
        ...


@dataclass(frozen=True, slots=True)
class House:
    """`ask` answers (visitor, question, parameters) and raises `NotShown`; `chain` has the batches
    after a number, at most so many; `logs` is the end of what a pod printed; `parquet` writes a
    sheet, where that can be done."""

    ask: Ask
    chain: Callable[[Visitor, int, int], Awaitable[Chain]]
    logs: Callable[[Visitor, str, str], Awaitable[str]]
    news: PageNews
    door: Door
    parquet: Callable[[Sheet], Awaitable[bytes]] | None = None
