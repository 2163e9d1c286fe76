"""The page Ledger: the chain of batches, which the browser verifies."""

from leasehold.control.questions.answers.books import AuditAnswer, HeadAnswer
from leasehold.web.dependencies import NotShown
from leasehold.web.pages.view import Page, PageView

SHOWN = 50
AT_ONCE = 500


async def show(look: PageView) -> Page:
    head = await look.ask(HeadAnswer, "ledger-head")
    after = _number(look.filter("after"), max(0, head.seq - SHOWN))
    chain = await look.house.chain(look.visitor, after, SHOWN)
    return Page(
        title="Ledger",
        template="ledger.html",
        menu="ledger",
        context={
            "head": head,
            "audit": await look.ask(AuditAnswer, "audit"),
            "lines": list(reversed(chain.lines)),
            "after": after,
            "earlier": max(0, after - SHOWN),
            "later": after + SHOWN if after + SHOWN < head.seq else None,
        },
    )


async def lines(look: PageView) -> dict[str, object]:
    """Return batches as data for verification."""
    after = _number(look.filter("after"), 0)
    head = await look.ask(HeadAnswer, "ledger-head")
    chain = await look.house.chain(look.visitor, after, AT_ONCE)
    return {
        "head": {"seq": head.seq, "digest": head.digest},
        "before": chain.before,
        "lines": [
            {"seq": each.seq, "digest": each.digest, "text": each.text} for each in chain.lines
        ],
    }


def _number(text: str, otherwise: int) -> int:
    if not text:
        return otherwise
    if not (text.isascii() and text.isdigit() and len(text) < 16):
        raise NotShown(400, f"after={text[:40]!r}: use the number of a batch")
    return int(text)
