"""One request for a page: the visitor, the page's filters, and the questions that the page asks."""

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from leasehold.control.questions.answers.money import UsageAnswer
from leasehold.control.questions.answers.shape import Answer
from leasehold.web.dependencies import NotShown, PageDependencies, Visitor
from leasehold.web.palette import Palette

Found = TypeVar("Found", bound=Answer)

# Path below /ui/, and name in the menu.
MENU = (
    ("", "Now"),
    ("fleet", "Fleet"),
    ("runs", "Runs"),
    ("queue", "Queue"),
    ("budgets", "Budgets"),
    ("decisions", "Decisions"),
    ("ledger", "Ledger"),
    ("report", "Report"),
)


@dataclass(slots=True)
class PageView:
    house: PageDependencies
    visitor: Visitor
    filters: Mapping[str, str]
    names: Mapping[str, str]  # names in the path, such as a run
    now: int = 0

    async def ask(self, kind: type[Found], question: str, **params: str) -> Found:
        """Ask a question and return its answer. Raise `NotShown` if the visitor may not see the
        answer, or if the object that the question names does not exist."""
        given = {name.rstrip("_"): value for name, value in params.items() if value}
        answered = await self.house.ask(self.visitor, question, given)
        found = answered.found
        assert isinstance(found, kind), f"{question} is answered by {type(found).__name__}"
        self.now = max(self.now, answered.now)
        return found

    async def ask_or(self, otherwise: Found, question: str, **params: str) -> Found:
        """Ask a question and return its answer; return `otherwise` if the visitor may not see the
        answer."""
        try:
            return await self.ask(type(otherwise), question, **params)
        except NotShown as refused:
            if refused.status != 403:
                raise
            return otherwise

    def filter(self, name: str) -> str:
        return self.filters.get(name, "").strip()

    async def usage(self) -> tuple[UsageAnswer, Palette]:
        """Return how much each owner uses of each envelope, and a palette for the owners of these
        envelopes."""
        usage = await self.ask(UsageAnswer, "budgets", form="usage")
        return usage, Palette(each.owner for each in usage.owners)


@dataclass(frozen=True, slots=True)
class Page:
    title: str
    template: str
    menu: str  # path of the page's menu entry
    context: Mapping[str, object] = field(default_factory=dict)


Show = Callable[[PageView], Coroutine[object, object, Page]]
