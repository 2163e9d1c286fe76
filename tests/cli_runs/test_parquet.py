"""GPU-hour reports as Parquet: the numbers of the CSV in typed columns, read back by DuckDB."""

import csv
import io
from datetime import date
from decimal import Decimal
from pathlib import Path

import duckdb
import pytest
from tests.cli_runs.conftest import Cli

from leasehold.app.failure import Failure
from leasehold.app.parquet import load, write_parquet
from leasehold.cli.runs.report import USES
from leasehold.core.units import parse_instant


def written(cli: Cli, file: Path, *words: str) -> duckdb.DuckDBPyRelation:
    done = cli("report", "gpu-hours", *words, "-o", "parquet", "--file", str(file))
    assert (done.exit_code, done.stdout, done.stderr) == (0, "", "")
    return duckdb.read_parquet(str(file))


@pytest.mark.parametrize("by", ["owner", "payer", "run", "node", "day"])
def test_parquet_has_same_columns_and_rows_as_csv(cli: Cli, tmp_path: Path, by: str) -> None:
    words = ["--by", by, "--to", "2026-11-02T14:30:00Z"]
    printed = cli("report", "gpu-hours", *words, "-o", "csv").stdout
    expected = list(csv.DictReader(io.StringIO(printed)))
    found = written(cli, tmp_path / "it's.parquet", *words)
    assert found.columns == list(expected[0])
    times = found.project('"from", epoch_ms("to")').fetchall()
    assert times == [(None, parse_instant("2026-11-02T14:30:00Z"))] * len(expected)
    values = found.project('* EXCLUDE ("from", "to")').fetchall()
    assert [[str(value) for value in row] for row in values] == [
        [_as_typed(key, value) for key, value in row.items() if key not in ("from", "to")]
        for row in expected
    ]


def _as_typed(key: str, value: str) -> str:
    return f"{Decimal(value):.3f}" if key.lower().endswith("gpuhours") else value


def test_parquet_columns_have_numeric_and_date_types(cli: Cli, tmp_path: Path) -> None:
    found = written(cli, tmp_path / "x.parquet", "--by", "day", "--from", "2026-11-01")
    kinds = dict(zip(found.columns, map(str, found.types), strict=True))
    assert kinds == {
        "from": "TIMESTAMP WITH TIME ZONE",
        "to": "TIMESTAMP WITH TIME ZONE",
        "day": "DATE",
        "leases": "BIGINT",
        "gpuMs": "BIGINT",
        "gpuHours": "DECIMAL(18,3)",
        **{f"{use}GpuMs": "BIGINT" for use in USES},
        **{f"{use}GpuHours": "DECIMAL(18,3)" for use in USES},
    }
    days = [row[0] for row in found.project("day").fetchall()]
    assert all(isinstance(day, date) for day in days)
    assert days == sorted(days)


def test_empty_parquet_report_has_columns_but_no_rows(cli: Cli, tmp_path: Path) -> None:
    found = written(cli, tmp_path / "x.parquet", "--owner", "org:nobody")
    assert found.fetchall() == []
    assert found.columns[2] == "owner"


def test_unwritable_parquet_file_is_reported_and_leaves_no_file(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "no" / "x.parquet"
    done = cli("report", "gpu-hours", "-o", "parquet", "--file", str(file))
    assert done.exit_code == 1
    assert done.stderr == f"error: cannot write {file}: No such file or directory\n"
    (tmp_path / "a-folder").mkdir()
    done = cli("report", "gpu-hours", "-o", "parquet", "--file", str(tmp_path / "a-folder"))
    assert "Is a directory" in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a-folder", "kubeconfig"]


def test_duckdb_error_is_reported_in_one_line_and_leaves_no_file(tmp_path: Path) -> None:
    """A value of the wrong type stands for any error of DuckDB, such as a full disk."""
    file = tmp_path / "x.parquet"
    with pytest.raises(Failure, match=f"cannot write {file}: ") as refused:
        write_parquet(load(), [("n", "BIGINT")], "n\nno number\n", str(file))
    assert "\n" not in str(refused.value)
    assert list(tmp_path.iterdir()) == []
