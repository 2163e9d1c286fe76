"""A report as a sheet for other programs: CSV and Parquet, also for `kubectl runs report`.

The sheet has one row per item and no total row, so that a program can sum a column.
"""

import csv
import io
from collections.abc import Sequence
from typing import NamedTuple

from msgspec import UNSET

from leasehold.control.questions.answers.books import ReportAnswer, ReportRow
from leasehold.control.questions.answers.shape import GpuAmount

USES = ("work", "spare", "starting", "failed", "cut")
_WHOLE, _HOURS, _TIME = "BIGINT", "DECIMAL(18, 3)", "TIMESTAMPTZ"
_KEYS = {"day": "DATE"}  # all other keys are text

Value = str | int | None


class SheetColumn(NamedTuple):
    name: str
    kind: str  # SQL type


class Sheet(NamedTuple):
    columns: Sequence[SheetColumn]
    rows: Sequence[Sequence[Value]]

    def csv(self, *, for_spreadsheets: bool = False) -> str:
        """Return CSV with a header line. If `for_spreadsheets` is True, escape cells that a
        spreadsheet would treat as a formula."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow([each.name for each in self.columns])
        for row in self.rows:
            writer.writerow([_harmless(each) for each in row] if for_spreadsheets else row)
        return text.getvalue()


def sheet(report: ReportAnswer) -> Sheet:
    by = report.by
    columns = [
        SheetColumn("from", _TIME),
        SheetColumn("to", _TIME),
        SheetColumn(by, _KEYS.get(by, "VARCHAR")),
    ]
    columns += [SheetColumn("leases", _WHOLE), *_amount("")]
    if by == "owner":
        columns += _amount("paid")
    for use in USES:
        columns += _amount(use)
    return Sheet(columns, [_row(report, each) for each in report.items])


def key_of(report: ReportAnswer, row: ReportRow) -> str:
    """Return the value by which the report groups this row, such as the owner."""
    return str(getattr(row, report.by))


def use_of(row: ReportRow, use: str) -> GpuAmount:
    found = getattr(row.uses, use)
    assert isinstance(found, GpuAmount), use
    return found


def _amount(of: str) -> list[SheetColumn]:
    names = (f"{of}GpuMs", f"{of}GpuHours") if of else ("gpuMs", "gpuHours")
    return [SheetColumn(names[0], _WHOLE), SheetColumn(names[1], _HOURS)]


def _row(report: ReportAnswer, row: ReportRow) -> list[Value]:
    leases = None if row.leases is UNSET else row.leases
    found: list[Value] = [report.start, report.end, key_of(report, row), leases]
    found += [row.gpu_ms, row.gpu_hours]
    if row.paid_gpu_ms is not UNSET and row.paid_gpu_hours is not UNSET:
        found += [row.paid_gpu_ms, row.paid_gpu_hours]
    for use in USES:
        amount = use_of(row, use)
        found += [amount.gpu_ms, amount.gpu_hours]
    return found


def _harmless(value: Value) -> Value:
    """Escape a cell that a spreadsheet would treat as a formula, also if blanks precede the
    formula."""
    if not isinstance(value, str):
        return value
    plain = " ".join(value.split())
    return f"'{plain}" if plain[:1] in ("=", "+", "-", "@") else plain
