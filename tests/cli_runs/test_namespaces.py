"""`-n` filters every command that has it, even commands that cover all namespaces by default."""

import json

import pytest
from tests.cli_runs.conftest import Cli


def rows(cli: Cli, *words: str, key: str = "items") -> list[dict[str, object]]:
    done = cli(*words, "-o", "json")
    assert done.exit_code == 0, done.stderr
    found = json.loads(done.stdout)[key]
    assert isinstance(found, list)
    return found


def test_namespace_option_filters_leases(cli: Cli) -> None:
    everything = {str(row["run"]).partition("/")[0] for row in rows(cli, "leases", "--closed")}
    found = rows(cli, "leases", "--closed", "-n", "speech")

    assert len(everything) > 1
    assert {str(row["run"]).partition("/")[0] for row in found} == {"speech"}
    assert rows(cli, "leases", "-n", "nowhere") == []


@pytest.mark.parametrize("form", ["usage", "balance"])
def test_namespace_option_filters_envelopes(cli: Cli, form: str) -> None:
    everything = rows(cli, "budgets", form)
    found = rows(cli, "budgets", form, "-n", "speech")

    mine = [row for row in everything if str(row["envelope"]).startswith("speech/")]
    assert mine
    assert len(mine) < len(everything)
    assert found == mine


def test_namespace_option_filters_owners(cli: Cli) -> None:
    owners = {str(row["owner"]) for row in rows(cli, "budgets", "usage", "-n", "speech")}

    found = rows(cli, "budgets", "usage", "-n", "speech", key="owners")
    assert {row["owner"] for row in found} == owners
    assert {row["owner"] for row in rows(cli, "budgets", "tree", "-n", "speech")} == owners


def test_namespace_option_filters_gpu_hours_report(cli: Cli) -> None:
    by_run = rows(cli, "report", "gpu-hours", "--by", "run")
    found = rows(cli, "report", "gpu-hours", "--by", "run", "-n", "speech")

    mine = [row for row in by_run if str(row["run"]).startswith("speech/")]
    assert mine
    assert len(mine) < len(by_run)
    assert found == mine


@pytest.mark.parametrize(
    "words",
    [("leases", "--closed"), ("budgets", "usage"), ("budgets", "balance"), ("budgets", "tree"),
     ("report", "gpu-hours", "--by", "run")],
    ids=" ".join,
)  # fmt: skip
def test_all_namespaces_option_equals_default_and_overrides_namespace(
    cli: Cli, words: tuple[str, ...]
) -> None:
    assert rows(cli, *words, "-A") == rows(cli, *words)
    assert rows(cli, *words, "-n", "speech", "-A") == rows(cli, *words)
