"""Simulates ever new seeds for as long as it is told: `python tools/soak.py --hours 8 --workers 2`.

`make soak` calls it. Seeds go on where the last soak of this folder stopped; plans that failed are
left in build/storm, each to be played again with `leasehold sim --plan`. Exit status 1 if there are
any.
"""

import argparse
import subprocess
import sys
import time
from pathlib import Path

BUILD = Path("build/storm")
NEXT = BUILD / "next-seed"
FIRST = 1_000_000
AT_ONCE = 50


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("--hours", type=float, default=1.0)
    asked.add_argument("--workers", type=int, default=2)
    given = asked.parse_args()
    BUILD.mkdir(parents=True, exist_ok=True)
    until = time.monotonic() + given.hours * 3600
    failed = 0
    while time.monotonic() < until:
        seed = int(NEXT.read_text()) if NEXT.exists() else FIRST
        last = seed + AT_ONCE - 1
        done = subprocess.run(
            [sys.executable, "-c", "from leasehold.cli.main import main; main()", "sim",
             "--seeds", f"{seed}..{last}", "--workers", str(given.workers), "--keep", str(BUILD)],
            check=False,
        )  # fmt: skip
        failed += done.returncode != 0
        NEXT.write_text(str(last + 1))
    print(f"{failed} rounds of {AT_ONCE} seeds had a failure; their plans are in {BUILD}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
