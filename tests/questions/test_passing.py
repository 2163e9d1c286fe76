"""Runs that were backfilled ahead of a waiting run, and why they do not delay it."""

from pathlib import Path

import pytest
import yaml
from tests.questions.played import Played

FLEET = [{"domain": "a", "nodes": 3, "gpus": 8, "flavor": "H100-80GB", "region": "us-west",
          "cluster": "gpu-a"}]  # fmt: skip
MONEY = {"t/t": {"owner": "t:team", "envelopes": [
    {"name": "e", "flavor": "H100-80GB", "concurrency": 64}]}}  # fmt: skip


def run(gpus: int, limit: str = "") -> dict[str, object]:
    found: dict[str, object] = {
        "owner": "t:team",
        "resources": {"gpuType": "H100-80GB", "totalGPUs": gpus, "gpusPerPod": 8},
    }
    return found | ({"runtime": {"maxDuration": limit}} if limit else {})


def backfilled(folder: Path, *steps: dict[str, object]) -> dict[str, list[dict[str, str]]]:
    """Return for each waiting run the runs that were backfilled ahead of it, at the story's end."""
    file = folder / "story.yaml"
    story = {"title": "Who passes", "fleet": FLEET, "budgets": MONEY, "steps": list(steps)}
    file.write_text(yaml.safe_dump(story))
    items = Played(file, "10m").ask("reservations")["items"]
    assert isinstance(items, list)
    return {each["run"]: each["passedBy"] for each in items}


def test_short_run_is_backfilled_if_it_ends_before_the_planned_start(tmp_path: Path) -> None:
    found = backfilled(
        tmp_path,
        {"at": "0s", "submit": {"t/long": run(16, "1h")}},
        {"at": "1m", "submit": {"t/wide": run(24, "1h")}},
        {"at": "2m", "submit": {"t/short": run(8, "10m")}},
    )
    (other,) = found["t/wide"]
    assert other["run"] == "t/short"
    assert "before the planned start of t/wide" in other["says"]
    assert "it ends by" in other["says"]
    assert other["gpus"] == 8


def test_earlier_run_does_not_count_as_backfilled(tmp_path: Path) -> None:
    found = backfilled(
        tmp_path,
        {"at": "0s", "submit": {"t/long": run(16, "1h")}},
        {"at": "1m", "submit": {"t/wide": run(24, "1h")}},
    )
    assert found == {"t/wide": []}


def test_run_that_would_delay_the_planned_start_is_not_backfilled(tmp_path: Path) -> None:
    """The queue itself ensures that; otherwise the answer could give no true explanation."""
    found = backfilled(
        tmp_path,
        {"at": "0s", "submit": {"t/long": run(16, "1h")}},
        {"at": "1m", "submit": {"t/wide": run(24, "1h")}},
        {"at": "2m", "submit": {"t/endless": run(8, "2h")}},
    )
    assert found["t/wide"] == []
    assert "t/endless" in found


def test_run_is_backfilled_on_nodes_that_the_plan_does_not_use(tmp_path: Path) -> None:
    found = backfilled(
        tmp_path,
        {"at": "0s", "submit": {"t/long": run(16, "1h")}},
        {"at": "1m", "submit": {"t/wide": run(16, "1h")}},
        {"at": "2m", "submit": {"t/endless": run(8, "3h")}},
    )
    says = [each["says"] for each in found["t/wide"]]
    assert says == ["it uses no node that t/wide is planned on"]


def test_beneficiary_of_a_resolution_does_not_count_as_backfilled(tmp_path: Path) -> None:
    """The beneficiary was submitted after the victim, and runs while the victim waits again."""
    first = run(24)
    first["runtime"] = {"checkpoint": "5m"}
    file = tmp_path / "story.yaml"
    steps = [
        {"at": "0s", "submit": {"t/first": first}},
        {"at": "1m", "submit": {"t/second": run(24)}},
    ]
    story = {"title": "Who passes", "fleet": FLEET, "budgets": MONEY, "steps": steps}
    file.write_text(yaml.safe_dump(story))
    played = Played(file, "20m")
    items = played.ask("reservations")["items"]
    assert isinstance(items, list)
    assert [(each["run"], each["passedBy"]) for each in items] == [("t/first", [])]
    assert played.world.resolutions


@pytest.mark.parametrize("limit", ["", "3h"])
def test_backfilled_run_may_be_preempted_for_a_start_by_preemption(
    tmp_path: Path, limit: str
) -> None:
    found = backfilled(
        tmp_path,
        {"at": "0s", "submit": {"t/long": run(16)}},
        {"at": "1m", "submit": {"t/wide": run(24)}},
        {"at": "2m", "submit": {"t/other": run(8, limit)}},
    )
    for other in found.get("t/wide", []):
        assert other["says"] == "it may be preempted for t/wide, like any other run"
