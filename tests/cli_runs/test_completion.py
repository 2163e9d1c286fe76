"""What the shell offers for the word being typed, and that it is silent when it cannot know."""

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
def test_offers(
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


def test_the_directive_comes_last_and_nothing_else_is_said(config: Path, facade: Facade) -> None:
    done = completed(str(config), "explain", "-n", "audio", "s")
    assert (done.returncode, done.stdout, done.stderr) == (0, "sweep\n:4\n", "")
    facade.callers = {}
    done = completed(str(config), "explain", "")
    assert (done.returncode, done.stdout, done.stderr) == (0, ":4\n", "")
    done = completed("/no/such/kubeconfig", "explain", "")
    assert (done.returncode, done.stdout, done.stderr) == (0, ":4\n", "")


def test_what_goes_wrong_inside_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "/no/such/kubeconfig")
    with pytest.raises(Failure):
        candidates(["explain", ""])


def test_a_phase_is_taken_in_any_case_and_spelt_as_statuses_spell_it(cli: Cli) -> None:
    assert "[Pending|Running|Completed|Failed]" in cli("list", "--help").output
    assert (
        cli("list", "-A", "--phase", "running").output
        == cli("list", "-A", "--phase", "Running").output
    )
    assert "'Pending', 'Running', 'Completed', 'Failed'" in cli("list", "--phase", "asleep").output
