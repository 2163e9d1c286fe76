"""The chart, the alerts and the dashboard in the guide are made from what `install` applies."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_chart_alerts_and_dashboard_are_up_to_date() -> None:
    words = [sys.executable, str(ROOT / "tools" / "chart.py"), "--check"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
