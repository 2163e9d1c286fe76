"""Reports by day, week and month in any time zone: the totals are always the same."""

import json

import pytest
from tests.cli_runs.conftest import Cli


def report(cli: Cli, *words: str) -> dict[str, object]:
    done = cli("report", "gpu-hours", *words, "-o", "json")
    assert done.exit_code == 0, done.stderr
    found = json.loads(done.stdout)
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("zone", ["", "UTC", "Asia/Tokyo", "America/St_Johns"])
@pytest.mark.parametrize("by", ["day", "week", "month"])
def test_periods_of_any_calendar_and_zone_add_up_to_total(cli: Cli, by: str, zone: str) -> None:
    whole = report(cli, "--by", "run")["total"]
    found = report(cli, "--by", by, "--tz", zone)
    rows = found["items"]
    assert isinstance(rows, list)
    assert isinstance(whole, dict)
    assert rows
    assert sum(row["gpuMs"] for row in rows) == whole["gpuMs"]


def test_days_depend_on_time_zone_and_weeks_are_iso_weeks(cli: Cli) -> None:
    here = report(cli, "--by", "day")["items"]
    there = report(cli, "--by", "day", "--tz", "Pacific/Auckland")["items"]
    assert isinstance(here, list)
    assert isinstance(there, list)
    assert [row["day"] for row in here] == ["2026-11-02"]
    assert [row["day"] for row in there] == ["2026-11-03"]
    assert "WEEK" in cli("report", "gpu-hours", "--by", "week").stdout
    assert "2026-W45" in cli("report", "gpu-hours", "--by", "week").stdout


def test_time_zone_option_needs_calendar_and_valid_zone(cli: Cli) -> None:
    assert "--tz is the time zone" in cli("report", "gpu-hours", "--tz", "UTC").stderr
    wrong = cli("report", "gpu-hours", "--by", "day", "--tz", "Mars/Olympus")
    assert wrong.exit_code == 1
    assert "use a zone such as Europe/Berlin" in wrong.stderr
