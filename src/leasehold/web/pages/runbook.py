"""The page Runbook: what to do about each alert, one section per alert.

Its text is generated from the operator's guide by `tools/runbook_page.py`.
"""

from leasehold.control.questions.answers.fleet import AttentionAnswer
from leasehold.web.pages.view import Page, PageView


async def show(look: PageView) -> Page:
    needed = await look.ask(AttentionAnswer, "attention")
    sections = dict.fromkeys(each.runbook for each in needed.items if each.runbook)
    return Page(
        title="Runbook", template="runbook.html", menu="", context={"needed": list(sections)}
    )
