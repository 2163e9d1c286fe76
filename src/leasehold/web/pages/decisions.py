"""The page Decisions, and the page of one Resolution, which the browser verifies."""

from leasehold.control.questions.answers.decisions import ResolutionsAnswer
from leasehold.web.pages.view import Page, PageView

SHOWN = "100"


async def show(look: PageView) -> Page:
    _, palette = await look.usage()
    found = await look.ask(ResolutionsAnswer, "resolutions", limit=SHOWN)
    return Page(
        title="Decisions",
        template="decisions.html",
        menu="decisions",
        context={"rows": found.items, "total": found.total, "palette": palette},
    )


async def show_one(look: PageView) -> Page:
    found = await look.ask(ResolutionsAnswer, "resolutions", resolution=look.names["name"])
    _, palette = await look.usage()
    return Page(
        title=found.items[0].name,
        template="decision.html",
        menu="decisions",
        context={"row": found.items[0], "palette": palette},
    )
