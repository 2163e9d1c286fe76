"""A view that lives until the run ends, and what its pods printed."""

import json

import pytest
from tests.cli_runs.conftest import Cli
from tests.cli_runs.facade import Facade

from leasehold.core.units import MINUTE


@pytest.fixture
def moving(facade: Facade) -> Facade:
    """Ten minutes pass between two looks."""

    def tick() -> None:
        facade.played.stage.advance_to(facade.played.now + 10 * MINUTE)

    facade.tick = tick
    return facade


def test_watching_a_run_prints_every_change_and_ends_with_it(cli: Cli, moving: Facade) -> None:
    done = cli("watch", "train", "--interval", "0.01")
    lines = done.stdout.splitlines()
    assert lines[0] == "2026-11-02T14:45:00Z vision/train Running 24/24 GPUs: 24 GPUs bound"
    assert lines[-1].startswith("2026-11-03T00:05:00Z vision/train Failed 0/24 GPUs: ")
    assert "maxDuration" in lines[-1]
    assert len(lines) == 2
    assert done.exit_code == 1  # it did not complete


def test_a_run_that_has_completed_is_over_at_once(cli: Cli) -> None:
    done = cli("watch", "speech/decode")
    assert done.exit_code == 0
    assert done.stdout.count("\n") == 1
    assert "Completed" in done.stdout
    missing = cli("watch", "speech/nothing")
    assert (missing.exit_code, missing.stdout) == (1, "")
    assert missing.stderr == "error: there is no run speech/nothing\n"


def test_watching_as_json_gives_a_document_for_each_change(cli: Cli, moving: Facade) -> None:
    lines = cli("watch", "train", "--interval", "0.01", "-o", "json").stdout.splitlines()
    assert [json.loads(line)["phase"] for line in lines] == ["Running", "Failed"]


def pods_of(cli: Cli, run: str) -> list[str]:
    return [each["name"] for each in json.loads(cli("pods", run, "-o", "json").stdout)["items"]]


def test_logs_of_one_pod_come_as_they_are(cli: Cli, facade: Facade) -> None:
    first, second = pods_of(cli, "audio/sweep")
    facade.logs = {first: b"one\ntwo\xff\nthree", second: b"four\n"}
    done = cli("logs", "audio/sweep", "--group", "0")
    assert done.stdout_bytes == b"one\ntwo\xff\nthree\n"
    assert cli("logs", "audio/sweep", "--pod", second).stdout == "four\n"
    assert cli("logs", "audio/sweep", "--pod", first, "--tail", "1").stdout == "three\n"


@pytest.mark.parametrize("flags", [[], ["-f"]])
def test_logs_of_several_pods_carry_a_prefix(cli: Cli, facade: Facade, flags: list[str]) -> None:
    first, second = pods_of(cli, "audio/sweep")
    facade.logs = {first: b"one\ntwo\n", second: b"four\n"}
    done = cli("logs", "audio/sweep", *flags)
    assert sorted(done.stdout.splitlines()) == ["[0.0] one", "[0.0] two", "[1.0] four"]


def test_logs_that_are_not_there(cli: Cli, facade: Facade) -> None:
    assert "has no pods" in cli("logs", "speech/rescore").stderr
    assert "has no such pod" in cli("logs", "audio/sweep", "--pod", "x").stderr
    gone = cli("logs", "audio/sweep")
    assert gone.exit_code == 1
    assert "is no longer available" in gone.stderr
    facade.logs = {pods_of(cli, "audio/sweep")[0]: b"one\n"}
    rest = cli("logs", "audio/sweep")  # as of an attempt that failed, whose other pods are gone
    assert (rest.exit_code, rest.stdout) == (0, "[0.0] one\n")
    assert "is no longer available" in rest.stderr
    half = cli("logs", "audio/sweep", "-f")
    assert (half.exit_code, half.stdout) == (1, "[0.0] one\n")
    assert "is no longer available" in half.stderr
