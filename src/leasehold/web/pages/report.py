"""The page report: GPU-hours by whatever somebody is billed by, as bars, a table and CSV."""

import csv
import io

from msgspec import UNSET

from leasehold.control.questions.answers.books import ReportAnswer, ReportRow
from leasehold.web.charts import WIDE
from leasehold.web.pages.look import Look, Page

GROUPINGS = ("owner", "payer", "run", "node", "day", "week", "month")


async def show(look: Look) -> Page:
    found = await _report(look)
    _, palette = await look.usage()
    most = max((each.gpu_ms for each in found.items), default=0) or 1
    rows = [
        (key_of(found, each), each, round(WIDE * each.gpu_ms / most, 1)) for each in found.items
    ]
    if found.by not in ("day", "week", "month"):
        rows.sort(key=lambda row: -row[1].gpu_ms)
    return Page(
        title="Report",
        template="report.html",
        menu="report",
        context={"report": found, "rows": rows, "groupings": GROUPINGS, "palette": palette},
    )


async def as_csv(look: Look) -> str:
    found = await _report(look)
    text = io.StringIO()
    sheet = csv.writer(text, lineterminator="\n")
    sheet.writerow([found.by, "leases", "gpuMs", "gpuHours"])
    for row in found.items:
        leases = "" if row.leases is UNSET else row.leases
        sheet.writerow([_harmless(key_of(found, row)), leases, row.gpu_ms, row.gpu_hours])
    return text.getvalue()


def key_of(report: ReportAnswer, row: ReportRow) -> str:
    return str(getattr(row, report.by))


def _harmless(text: str) -> str:
    """A spreadsheet takes a cell that begins like this for a formula."""
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text


async def _report(look: Look) -> ReportAnswer:
    return await look.ask(
        ReportAnswer,
        "report",
        by=look.filter("by") or GROUPINGS[0],
        owner=look.filter("owner"),
        from_=look.filter("from"),
        to=look.filter("to"),
    )
