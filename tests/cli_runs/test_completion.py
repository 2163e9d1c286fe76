"""Shell completion: the offered words, and silence when the server cannot be asked."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli_runs.conftest import Cli
from tests.cli_runs.facade import Facade

from leasehold.app.failure import Failure
from leasehold.cli.runs.command import COMMANDS
from leasehold.cli.runs.completion import candidates


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ([""], sorted(COMMANDS)),
        (["__complete", "wh"], ["who-pays"]),
        (["re"], ["report", "reservations"]),
        (["budgets", ""], ["balance", "tree", "usage"]),
        (["sponsors", "a"], ["add"]),
        (["explain", ""], ["train"]),
        (["explain", "-n", "audio", ""], ["sweep", "tags"]),
        (["explain", "--namespace=speech", "d"], ["decode"]),
        (["explain", "train", ""], []),
        (["sponsors", "add", "train", "lab"], ["lab:speech:asr"]),
        (["list", "--owner", "org:ai:mm:"], ["org:ai:mm:audio", "org:ai:mm:vision"]),
        (["leases", "--node", "a-0"], ["a-00", "a-01", "a-02", "a-03"]),
        (["leases", "--payer", "te"], ["text/text/west"]),
        (["list", "-n", ""], ["audio", "speech", "text", "vision"]),
        (["list", "-o", ""], ["json", "name", "table", "wide", "yaml"]),
        (["report", "gpu-hours", "--by", "o"], ["owner"]),
        (["leases", "--c"], ["--closed", "--context"]),
        (["leases", "--closed", ""], ["train"]),
        (["nonsense", "x"], []),
    ],
)
def test_completion_offers_matching_words(
    config: Path, monkeypatch: pytest.MonkeyPatch, typed: list[str], offered: list[str]
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(config))
    assert candidates(typed) == offered


def completed(config: str, *typed: str) -> subprocess.CompletedProcess[str]:
    code = "from leasehold.cli.runs.main import complete; complete()"
    return subprocess.run(
        [sys.executable, "-c", code, *typed],
        env={**os.environ, "KUBECONFIG": config},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def test_completion_prints_its_directive_last_and_no_error_messages(
    config: Path, facade: Facade
) -> None:
    done = completed(str(config), "explain", "-n", "audio", "s")
    assert (done.returncode, done.stdout, done.stderr) == (0, "sweep\n:4\n", "")
    facade.callers = {}
    done = completed(str(config), "explain", "")
    assert (done.returncode, done.stdout, done.stderr) == (0, ":4\n", "")
    done = completed("/no/such/kubeconfig", "explain", "")
    assert (done.returncode, done.stdout, done.stderr) == (0, ":4\n", "")


def test_unusable_kubeconfig_raises_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "/no/such/kubeconfig")
    with pytest.raises(Failure):
        candidates(["explain", ""])


def test_phase_option_ignores_case_and_lists_phases_as_in_status(cli: Cli) -> None:
    assert "[Pending|Running|Completed|Failed]" in cli("list", "--help").output
    assert (
        cli("list", "-A", "--phase", "running").output
        == cli("list", "-A", "--phase", "Running").output
    )
    assert "'Pending', 'Running', 'Completed', 'Failed'" in cli("list", "--phase", "asleep").output
