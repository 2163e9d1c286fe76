"""The chart, the alerts and the dashboard beside the guide are made of what `install` applies."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_nothing_of_it_is_stale() -> None:
    words = [sys.executable, str(ROOT / "tools" / "chart.py"), "--check"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
