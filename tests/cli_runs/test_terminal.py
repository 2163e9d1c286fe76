"""Colours and live views are only for terminals, and not if NO_COLOR is set."""

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest
from tests.cli_runs.facade import Facade

from leasehold.core.units import MINUTE

SCRIPT = [sys.executable, "-m", "leasehold.cli.runs.main"]


def on_a_terminal(config: Path, *words: str, **env: str) -> tuple[int, str]:
    """Run a command on a terminal; return its exit status and everything it wrote there."""
    ours, theirs = pty.openpty()
    plain = {key: value for key, value in os.environ.items() if key != "NO_COLOR"}
    everything = {**plain, "KUBECONFIG": str(config), "TERM": "xterm", "COLUMNS": "200", **env}
    with subprocess.Popen(
        [*SCRIPT, *words], env=everything, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs
    ) as process:
        os.close(theirs)
        written = b""
        while True:
            try:
                part = os.read(ours, 65536)
            except OSError:  # the last writer has closed it
                break
            if not part:
                break
            written += part
        os.close(ours)
        status = process.wait(timeout=30)
    return status, written.decode()


def test_phases_have_colours_on_terminal(config: Path) -> None:
    status, written = on_a_terminal(config, "list", "-A")
    assert status == 0
    assert "\x1b[32mRunning" in written
    assert "\x1b[33mPending" in written


@pytest.mark.parametrize("env", [{"NO_COLOR": "1"}, {"TERM": "dumb"}], ids=str)
def test_no_colour_and_dumb_terminal_disable_colours(config: Path, env: dict[str, str]) -> None:
    status, written = on_a_terminal(config, "list", "-A", **env)
    assert status == 0
    assert "Running" in written
    assert "\x1b" not in written


def test_live_view_is_drawn_until_run_ends(config: Path, facade: Facade) -> None:
    facade.tick = lambda: facade.played.stage.advance_to(facade.played.now + 60 * MINUTE)
    status, written = on_a_terminal(config, "watch", "train", "--interval", "0.01")
    assert status == 1  # the run reached its time limit
    assert "Running" in written
    assert written.index("Running") < written.index("maxDuration was reached")
