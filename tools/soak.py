"""Simulates new seeds for a given time: `python tools/soak.py --hours 8 --workers 2`.

`make soak` calls it. It begins with the seed after the last one that a soak has played in this
folder. The plan of each seed that failed is left in build/faults, and `leasehold sim --plan` plays
it again. When its time is over, or on SIGTERM or Ctrl-C, the soak ends with all the processes that
it has started. Exit status 1 if a seed failed.
"""

import argparse
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

BUILD = Path("build/faults")
NEXT = BUILD / "next-seed"
FIRST = 1_000_000
AT_ONCE = 20  # for each worker; a round that is cut off is played again by the next soak


class Soak:
    def __init__(self, hours: float, workers: int) -> None:
        self._until = time.monotonic() + hours * 3600
        self._workers = workers
        self._round: subprocess.Popen[bytes] | None = None
        self._is_told_to_stop = False
        self.seeds = 0

    def run(self) -> None:
        while not self._is_told_to_stop and time.monotonic() < self._until:
            seed = int(NEXT.read_text()) if NEXT.exists() else FIRST
            last = seed + AT_ONCE * self._workers - 1
            if self._has_played(seed, last):
                self.seeds += last - seed + 1
                NEXT.write_text(str(last + 1))

    def stop(self, *_: object) -> None:
        self._is_told_to_stop = True
        self._end_round()

    def _has_played(self, first: int, last: int) -> bool:
        """Play the seeds from `first` to `last`; return False if the time was over, or the soak was
        stopped, before all were played."""
        self._round = subprocess.Popen(
            [sys.executable, "-c", "from leasehold.cli.main import main; main()", "sim",
             "--seeds", f"{first}..{last}", "--workers", str(self._workers), "--keep", str(BUILD)],
            start_new_session=True,  # so that its workers end with it
        )  # fmt: skip
        if self._is_told_to_stop:  # stopped just before the process was started
            self._end_round()
        try:
            return self._round.wait(max(0.0, self._until - time.monotonic())) >= 0
        except subprocess.TimeoutExpired:
            self._end_round()
            self._round.wait()
            return False

    def _end_round(self) -> None:
        if self._round is not None and self._round.poll() is None:
            os.killpg(self._round.pid, signal.SIGKILL)


def left_behind() -> dict[Path, int]:
    """Return the plans of seeds that failed, each with the time at which it was written."""
    return {file: file.stat().st_mtime_ns for file in sorted(BUILD.glob("[0-9]*.json"))}


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("--hours", type=float, default=1.0)
    asked.add_argument("--workers", type=int, default=2)
    given = asked.parse_args()
    BUILD.mkdir(parents=True, exist_ok=True)
    before = left_behind()
    soak = Soak(given.hours, given.workers)
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, soak.stop)
    soak.run()
    failed = [file for file, at in left_behind().items() if before.get(file) != at]
    print(f"{soak.seeds} seeds in whole rounds; {len(failed)} that failed are left in {BUILD}")
    for file in failed:
        print(f"again: leasehold sim --plan {file}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
