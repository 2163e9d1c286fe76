"""The suite itself: it works in the background, and a hanging test is ended and shown."""

import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CTRL_C = "tests/cli_runs/test_errors.py::test_ctrl_c_exits_with_status_130_silently"
HANGS = """
import threading, time, pytest
from tests.deadlines import off_the_clock

@pytest.mark.deadline(1)
def test_sleeps():
    time.sleep(60)

@pytest.fixture
def slow():
    yield
    threading.Event().wait(60)

@pytest.mark.deadline(1)
def test_ends_late(slow):
    assert True

def test_goes_on():
    assert True

@pytest.mark.deadline(1)
def test_builds_what_all_need():
    with off_the_clock():
        time.sleep(1.5)

@pytest.mark.deadline(1)
def test_hangs_when_it_is_built():
    with off_the_clock():
        time.sleep(0.1)
    time.sleep(61)
"""


def pytest_of(
    arguments: Sequence[str], *, in_background: bool = False
) -> "subprocess.CompletedProcess[str]":
    def ignore() -> None:
        for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})

    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments],
        cwd=ROOT,
        preexec_fn=ignore if in_background else None,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_processes_started_by_tests_have_default_signals_in_background() -> None:
    done = pytest_of([CTRL_C], in_background=True)
    assert done.returncode == 0, done.stdout


def test_hanging_test_is_ended_and_shown_and_others_continue(tmp_path: Path) -> None:
    file = tmp_path / "test_that_hangs.py"
    file.write_text(HANGS)
    began = time.monotonic()
    done = pytest_of(["-p", "tests.conftest", "--rootdir", str(tmp_path), str(file)])
    assert time.monotonic() - began < 60
    assert "3 passed, 2 failed, 1 error" in _sorted(done.stdout), done.stdout
    assert "time.sleep(60)" in done.stdout
    assert "time.sleep(61)" in done.stdout
    assert done.stdout.count("DeadlinePassed") >= 3


def _sorted(stdout: str) -> str:
    """Return the counts of pytest's last line in a fixed order."""
    last = stdout.strip().splitlines()[-1]
    order = ("passed", "failed", "error")
    counts = {word: part.strip() for part in last.partition(" in ")[0].split(",")
              for word in order if word in part}  # fmt: skip
    return ", ".join(counts[word] for word in order if word in counts)
