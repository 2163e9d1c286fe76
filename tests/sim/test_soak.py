"""A soak ends when it must, with all processes that it started, and keeps failed plans."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DEADLINE_S = 120.0
SEALS = "                await self._swap(sealed)\n"


def a_soak(folder: Path, hours: str, source: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(ROOT / "tools" / "soak.py"), "--hours", hours, "--workers", "2"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(source), "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def wait_for_workers(soak: subprocess.Popen[str]) -> list[int]:
    """Return the processes of a round: one that hands seeds out, and its workers."""
    due = time.monotonic() + DEADLINE_S
    while len(found := _below(soak.pid)) < 3:
        assert time.monotonic() < due, "no round was begun"
        time.sleep(0.1)
    return found


def _below(parent: int) -> list[int]:
    found: list[int] = []
    for each in Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
        found += [int(each), *_below(int(each))]
    return found


def test_failed_seed_is_kept_as_a_plan(tmp_path: Path) -> None:
    """The planted bug, which the first seeds notice: a new leader does not seal."""
    source = Path(shutil.copytree(ROOT / "src", tmp_path / "src"))
    ledger = source / "leasehold" / "shell" / "ledger" / "commit.py"
    text = ledger.read_text(encoding="utf-8")
    assert text.count(SEALS) == 1
    ledger.write_text(text.replace(SEALS, "                self._known = sealed\n"), "utf-8")
    plans = tmp_path / "build" / "faults"
    soak = a_soak(tmp_path, "1", source)
    due = time.monotonic() + DEADLINE_S
    while not list(plans.glob("[0-9]*.json")):
        assert time.monotonic() < due, "nothing failed"
        time.sleep(0.1)
    soak.send_signal(signal.SIGTERM)
    said, _ = soak.communicate(timeout=DEADLINE_S)
    assert soak.returncode == 1, said
    (first, *_) = sorted(plans.glob("[0-9]*.json"))
    assert f"again: leasehold sim --plan build/faults/{first.name}" in said


def test_soak_ends_when_its_time_is_over(tmp_path: Path) -> None:
    soak = a_soak(tmp_path, "0.001", ROOT / "src")
    said, _ = soak.communicate(timeout=DEADLINE_S)
    assert soak.returncode == 0, said
    assert "seeds in whole rounds; 0 that failed" in said


def test_stopped_soak_leaves_no_process_running(tmp_path: Path) -> None:
    soak = a_soak(tmp_path, "1", ROOT / "src")
    playing = wait_for_workers(soak)
    soak.send_signal(signal.SIGTERM)
    said, _ = soak.communicate(timeout=DEADLINE_S)
    assert soak.returncode == 0, said
    assert "0 seeds in whole rounds; 0 that failed" in said
    due = time.monotonic() + DEADLINE_S
    while any(Path(f"/proc/{pid}").exists() for pid in playing):
        assert time.monotonic() < due, "a worker was left"
        time.sleep(0.1)
    assert not (tmp_path / "build" / "faults" / "next-seed").exists(), "it will be played again"
