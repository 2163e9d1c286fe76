"""The report of GPU-hours by use, as a page and as CSV or Parquet, safe for spreadsheets."""

import csv
import io
import re
from pathlib import Path

import duckdb
import pytest
from msgspec import UNSET
from tests.questions.test_the_past import STORY
from tests.web.visit import Visit

from leasehold.control.questions.answers.books import ReportAnswer, ReportRow, Uses
from leasehold.control.questions.answers.shape import GpuAmount
from leasehold.web.sheet import USES, sheet

NONE = GpuAmount(gpu_ms=0, gpu_hours="0")


@pytest.fixture
def visit(tmp_path: Path) -> Visit:
    found = Visit(tmp_path, STORY)
    found.sign_in()
    return found


def test_report_page_shows_gpu_hours_by_use(visit: Visit) -> None:
    text = visit.see("/ui/report").text
    for use, hours in (("work", "117.2"), ("spare", "18.667"), ("failed", "18.667"),
                       ("cut", "8")):  # fmt: skip
        assert re.search(rf"use-{use}\"[^>]*></i><b>{re.escape(hours)}</b> {use}", text), use
    assert "8 GPU-hours: work lost to preemptions" in text


def test_csv_report_has_all_uses_and_sums_up(visit: Visit) -> None:
    seen = visit.see("/ui/report.csv", "by=run")
    assert seen.headers["content-type"].startswith("text/csv")
    rows = list(csv.DictReader(io.StringIO(seen.text)))
    assert sum(int(row["gpuMs"]) for row in rows) == 585_120_000
    for row in rows:
        assert sum(int(row[f"{use}GpuMs"]) for use in USES) == int(row["gpuMs"])


def test_parquet_report_has_the_same_sums(visit: Visit, tmp_path: Path) -> None:
    seen = visit.see("/ui/report.parquet", "by=owner")
    assert seen.status == 200
    assert "gpu-hours-by-owner.parquet" in seen.headers["content-disposition"]
    path = tmp_path / "found.parquet"
    path.write_bytes(seen.body)
    found = duckdb.read_parquet(str(path))
    assert found.aggregate('sum("gpuMs"), sum("cutGpuMs")').fetchall() == [(585120000, 28800000)]


def test_parquet_report_without_duckdb_is_not_offered(tmp_path: Path) -> None:
    visit = Visit(tmp_path, STORY, parquet=False)
    visit.sign_in()
    assert "Parquet" not in visit.see("/ui/report").text
    seen = visit.see("/ui/report.parquet")
    assert seen.status == 501
    assert "leasehold[parquet]" in seen.text


@pytest.mark.parametrize("name", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", " \r\n@x"])
def test_csv_report_quotes_formulas(name: str) -> None:
    uses = Uses(work=NONE, spare=NONE, starting=NONE, failed=NONE, cut=NONE)
    row = ReportRow(run=name, leases=UNSET, gpu_ms=0, gpu_hours="0", uses=uses)
    found = sheet(ReportAnswer(by="run", start=None, end=None, owner="", items=[row], total=row))
    (line,) = csv.DictReader(io.StringIO(found.csv(for_spreadsheets=True)))
    assert line["run"] == f"'{name.strip()}"
