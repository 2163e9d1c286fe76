"""The page Budgets: the owner tree, use and hours of each envelope, and loans between owners."""

from leasehold.control.questions.answers.money import (
    BalanceAnswer,
    BurnAnswer,
    EnvelopeUsage,
    TreeAnswer,
)
from leasehold.web.charts import Bar, burn, loans, stacked
from leasehold.web.formats import plural
from leasehold.web.pages.view import Page, PageView


async def show(look: PageView) -> Page:
    owner = look.filter("owner")
    usage, palette = await look.usage()
    balance = await look.ask(BalanceAnswer, "budgets", form="balance", owner=owner)
    tree = await look.ask(TreeAnswer, "budgets", form="tree", owner=owner)
    hours = {each.envelope: each for each in balance.items}
    is_limited = any(each.limit and each.until for each in balance.items)
    burnt = await look.ask(BurnAnswer, "burn", owner=owner) if is_limited else BurnAnswer(items=[])
    courses = {each.envelope: each for each in burnt.items}
    drawn = {key: burn(row, courses.get(key), look.now) for key, row in hours.items()}
    rows = [each for each in usage.items if not owner or each.envelope in hours]
    return Page(
        title="Budgets",
        template="budgets.html",
        menu="budgets",
        context={
            "tree": tree.items,
            "rows": [(each, _bars(each), hours.get(each.envelope)) for each in rows],
            "burns": {key: found for key, found in drawn.items() if found is not None},
            "flow": loans(rows, palette),
            "owner": owner,
            "palette": palette,
        },
    )


def _bars(row: EnvelopeUsage) -> list[Bar]:
    own = row.used - row.lent
    return stacked(
        (
            ("use-paid", own, f"{plural(own, 'GPU')} in use by its own family"),
            ("use-lent", row.lent, f"{plural(row.lent, 'GPU')} lent to others"),
            ("use-idle", row.free, f"{plural(row.free, 'GPU')} free"),
            ("use-broken", row.overdrawn, f"{plural(row.overdrawn, 'GPU')} overdrawn"),
        )
    )
