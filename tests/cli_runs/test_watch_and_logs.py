"""`watch` until a run ends, and the logs of its pods."""

import json

import pytest
from tests.cli_runs.conftest import Cli
from tests.cli_runs.facade import Facade

from leasehold.core.units import MINUTE


@pytest.fixture
def moving(facade: Facade) -> Facade:
    """Let ten minutes of story time pass at every query."""

    def tick() -> None:
        facade.played.stage.advance_to(facade.played.now + 10 * MINUTE)

    facade.tick = tick
    return facade


def test_watch_prints_every_change_and_ends_with_the_run(cli: Cli, moving: Facade) -> None:
    done = cli("watch", "train", "--interval", "0.01")
    lines = done.stdout.splitlines()
    assert lines[0] == "2026-11-02T14:45:00Z vision/train Running 24/24 GPUs: 24 GPUs bound"
    assert lines[-1].startswith("2026-11-03T00:05:00Z vision/train Failed 0/24 GPUs: ")
    assert "maxDuration" in lines[-1]
    assert len(lines) == 2
    assert done.exit_code == 1  # the run did not complete


def test_watch_of_completed_run_ends_at_once_and_missing_run_fails(cli: Cli) -> None:
    done = cli("watch", "speech/decode")
    assert done.exit_code == 0
    assert done.stdout.count("\n") == 1
    assert "Completed" in done.stdout
    missing = cli("watch", "speech/nothing")
    assert (missing.exit_code, missing.stdout) == (1, "")
    assert missing.stderr == "error: there is no run speech/nothing\n"


def test_watch_as_json_prints_one_document_per_change(cli: Cli, moving: Facade) -> None:
    lines = cli("watch", "train", "--interval", "0.01", "-o", "json").stdout.splitlines()
    assert [json.loads(line)["phase"] for line in lines] == ["Running", "Failed"]


def pods_of(cli: Cli, run: str) -> list[str]:
    return [each["name"] for each in json.loads(cli("pods", run, "-o", "json").stdout)["items"]]


def test_logs_of_one_pod_are_printed_unchanged(cli: Cli, facade: Facade) -> None:
    first, second = pods_of(cli, "audio/sweep")
    facade.logs = {first: b"one\ntwo\xff\nthree", second: b"four\n"}
    done = cli("logs", "audio/sweep", "--group", "0")
    assert done.stdout_bytes == b"one\ntwo\xff\nthree\n"
    assert cli("logs", "audio/sweep", "--pod", second).stdout == "four\n"
    assert cli("logs", "audio/sweep", "--pod", first, "--tail", "1").stdout == "three\n"


@pytest.mark.parametrize("flags", [[], ["-f"]])
def test_logs_of_several_pods_have_prefix(cli: Cli, facade: Facade, flags: list[str]) -> None:
    first, second = pods_of(cli, "audio/sweep")
    facade.logs = {first: b"one\ntwo\n", second: b"four\n"}
    done = cli("logs", "audio/sweep", *flags)
    assert sorted(done.stdout.splitlines()) == ["[0.0] one", "[0.0] two", "[1.0] four"]


def test_missing_pods_and_expired_logs_are_reported(cli: Cli, facade: Facade) -> None:
    assert "has no pods" in cli("logs", "speech/rescore").stderr
    assert "has no such pod" in cli("logs", "audio/sweep", "--pod", "x").stderr
    gone = cli("logs", "audio/sweep")
    assert gone.exit_code == 1
    assert "is no longer available" in gone.stderr
    facade.logs = {pods_of(cli, "audio/sweep")[0]: b"one\n"}
    rest = cli("logs", "audio/sweep")  # the other pod of the run has no log any more
    assert (rest.exit_code, rest.stdout) == (0, "[0.0] one\n")
    assert "is no longer available" in rest.stderr
    half = cli("logs", "audio/sweep", "-f")
    assert (half.exit_code, half.stdout) == (1, "[0.0] one\n")
    assert "is no longer available" in half.stderr
