"""The page Report: GPU-hours grouped by owner, payer, run, node or time, as bars and a table, and
as sheets to download.
"""

from leasehold.control.questions.answers.books import ReportAnswer, ReportRow
from leasehold.web.charts import Bar, stacked
from leasehold.web.pages.view import Page, PageView
from leasehold.web.sheet import Sheet, key_of, sheet, use_of

GROUPINGS = ("owner", "payer", "run", "node", "day", "week", "month")
_SPANS = ("day", "week", "month")
USES = (
    ("work", "pods that ran"),
    ("spare", "idle spares"),
    ("starting", "pods that were starting"),
    ("failed", "work lost to failures: an upper bound"),
    ("cut", "work lost to preemptions: an upper bound"),
)


async def show(look: PageView) -> Page:
    found = await _report(look)
    _, palette = await look.usage()
    most = max((each.gpu_ms for each in found.items), default=0)
    rows = [(key_of(found, each), each, _bars(each, most)) for each in found.items]
    if found.by not in _SPANS:
        rows.sort(key=lambda row: -row[1].gpu_ms)
    return Page(
        title="Report",
        template="report.html",
        menu="report",
        context={
            "report": found,
            "rows": rows,
            "uses": [(use, says, use_of(found.total, use)) for use, says in USES],
            "groupings": GROUPINGS,
            "palette": palette,
            "has_parquet": look.house.parquet is not None,
        },
    )


async def as_sheet(look: PageView) -> Sheet:
    return sheet(await _report(look))


def _bars(row: ReportRow, most: int) -> list[Bar]:
    parts = ((use, says, use_of(row, use)) for use, says in USES)
    return stacked(
        (
            (f"use-{use}", amount.gpu_ms, f"{amount.gpu_hours} GPU-hours: {says}")
            for use, says, amount in parts
        ),
        most,
    )


async def _report(look: PageView) -> ReportAnswer:
    return await look.ask(
        ReportAnswer,
        "report",
        by=look.filter("by") or GROUPINGS[0],
        owner=look.filter("owner"),
        from_=look.filter("from"),
        to=look.filter("to"),
    )
