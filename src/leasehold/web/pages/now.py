"""The page Now: which jobs run and who pays, the next starts, recent preemptions, and alerts."""

from leasehold.control.questions.answers.decisions import ResolutionsAnswer
from leasehold.control.questions.answers.fleet import AttentionAnswer, FlavorRow, FleetAnswer
from leasehold.control.questions.answers.runs import ReservationsAnswer, RunsAnswer
from leasehold.web.charts import Bar, stacked
from leasehold.web.formats import plural
from leasehold.web.pages.view import Page, PageView

SHOWN = 40
_USE = (
    ("paid", "paid for and running"),
    ("spare", "kept as spares"),
    ("filler", "lent to fillers on spares"),
    ("foreign", "used by processes that are not a Run"),
    ("idle", "idle"),
    ("closed", "on nodes that accept no work"),
    ("broken", "on broken nodes"),
)


async def show(look: PageView) -> Page:
    fleet = await look.ask(FleetAnswer, "fleet")
    usage, palette = await look.usage()
    runs = await look.ask(RunsAnswer, "runs")
    held = [each for each in runs.items if each.width.allocated or each.width.spares]
    held.sort(key=lambda each: (each.owner, each.namespace, each.name))
    waiting = await look.ask(ReservationsAnswer, "reservations")
    attention = await look.ask(AttentionAnswer, "attention")
    nothing = ResolutionsAnswer(total=0, items=[])
    return Page(
        title="Now",
        template="now.html",
        menu="",
        context={
            "fleet": fleet,
            "flavors": [(each, _bars(each)) for each in fleet.flavors],
            "use": _USE,
            "held": held[:SHOWN],
            "held_total": len(held),
            "pending": [each for each in runs.items if each.phase == "Pending"],
            "waiting": waiting.items[:8],
            "waiting_total": len(waiting.items),
            "attention": attention.items,
            "decisions": (await look.ask_or(nothing, "resolutions", limit="5")).items,
            "owners": [each for each in usage.owners if each.gpus or each.lent],
            "payer_owner": {each.envelope: each.owner for each in usage.items},
            "palette": palette,
        },
    )


def _bars(row: FlavorRow) -> list[Bar]:
    counts = {
        "paid": row.paid,
        "spare": row.spare,
        "filler": row.filler,
        "foreign": row.foreign,
        "idle": row.idle,
        "closed": row.closed,
        "broken": row.broken,
    }
    return stacked(
        (f"use-{kind}", counts[kind], f"{plural(counts[kind], 'GPU')} {says}")
        for kind, says in _USE
    )
