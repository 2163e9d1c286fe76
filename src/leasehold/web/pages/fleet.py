"""The page Fleet, the page of a node, and the fleet as data for the canvas."""

from leasehold.control.questions.answers.fleet import FleetAnswer
from leasehold.control.questions.answers.leases import DrainAnswer, LeasesAnswer
from leasehold.web.pages.view import Page, PageView

ROWS = 200  # rows of the table; the canvas shows all
KEPT = 8  # versions that a page may have seen last
COLOURS = ("owner", "payer", "run", "state")


async def show(look: PageView) -> Page:
    found = await look.ask(FleetAnswer, "fleet", at=look.filter("at"))
    _, palette = await look.usage()
    find = look.filter("find").lower()
    rows = [each for each in found.nodes if find in f"{each.node} {each.domain}".lower()]
    return Page(
        title="Fleet",
        template="fleet.html",
        menu="fleet",
        context={
            "fleet": found,
            "rows": rows[:ROWS],
            "total": len(rows),
            "colours": COLOURS,
            "colour": look.filter("colour") or COLOURS[0],
            "palette": palette,
        },
    )


async def show_node(look: PageView) -> Page:
    name = look.names["name"]
    drain = await look.ask(DrainAnswer, "drain", node=name)
    found = await look.ask(FleetAnswer, "fleet")
    _, palette = await look.usage()
    leases = await look.ask(LeasesAnswer, "leases", node=name, since=look.filter("since") or "12h")
    return Page(
        title=name,
        template="node.html",
        menu="fleet",
        context={
            "node": next((each for each in found.nodes if each.node == name), None),
            "holders": found.holders,
            "drain": drain,
            "leases": list(reversed(leases.items))[:ROWS],
            "total": leases.total,
            "palette": palette,
        },
    )
