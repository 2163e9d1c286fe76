"""Submit thousands of mutated manifests to a running server with its agent.

`python -m tests.up.fuzz [--submissions N] [--seed S]` runs the test and prints its counts; a round
of `SUBMISSIONS` is part of the suite. The submissions are Runs, Budgets, edits of running Runs,
patches of Nodes and Pods, and deletions, with one kill and one stop in between. The server must
never exit, never answer with a 5xx and never log an internal error. When everything is deleted,
nothing may be left.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.up.raw import Raw
from tests.up.server import Up, marked, team
from tests.up.submissions import NODE_NAMES, PATIENCE_S, Findings, Submissions, clear

SUBMISSIONS = 5_000
FLEET = """
fleet:
  - {domain: a, nodes: 4, gpus: 8, flavor: virtual, region: r, cluster: c}
"""
CONFIG = """
activationLead: 2s
reservation.patience: 2s
resolver.minTenure: 0s
retry.backoff: 200ms
bind.backoff: 200ms
resize.interval: 0s
"""


class Fuzz:
    def __init__(self, folder: Path, *, seed: int) -> None:
        fleet = folder / "fleet.yaml"
        fleet.write_text(FLEET)
        self.server = Up(folder, "--fleet", str(fleet), "--log-level", "warning", config=CONFIG)
        self._sent = Submissions(lambda: Raw(self.server.kubeconfig), seed=seed)
        self.found = self._sent.found

    def play(self, submissions: int) -> Findings:
        """Send in three parts: kill the server after the first, and stop it after the second."""
        server = self.server
        server.start()
        server.submit(*team(concurrency=32))
        for part, end in enumerate((server.kill, server.stop, lambda: None)):
            goal = submissions * (part + 1) // 3
            self._sent.send(goal, part)
            if self._is_over():
                return self.found
            end()
            if part < 2:
                server.start()
        self._clear()
        self._compare()
        return self.found

    def _is_over(self) -> bool:
        code = self.server.process.poll()
        if code is not None:
            log = (self.server.folder / "up.log").read_text()[-3000:]
            self.found.problems.append(f"the server exited with {code}: {log}")
        return code is not None or bool(self.found.problems)

    # After the submissions.

    def _clear(self) -> None:
        client = Raw(self.server.kubeconfig)
        for node in NODE_NAMES:
            self._sent.mend(client, node)
        clear(client, self.found.problems)
        client.close()

    def _compare(self) -> None:
        server, problems = self.server, self.found.problems
        deadline = time.monotonic() + PATIENCE_S
        while (left := marked(server.data)) and time.monotonic() < deadline:
            time.sleep(0.1)
        if left:
            problems.append(f"processes are left: {left}")
        open_leases = [row for row in server.rows("leases") if row["end"] is None]
        if open_leases:
            problems.append(f"GPUs are held: {open_leases[:5]}")
        log = (server.folder / "up.log").read_text().splitlines()
        bad = [line for line in log if '"exception"' in line or '"contained"' in line]
        if bad:
            problems.append(f"the log has failures of ours: {bad[:3]}")
        for command in (("ledger", "verify"), ("audit",)):
            done = server.cli("leasehold", *command, "--data", str(server.data), ok=False)
            if done.returncode:
                problems.append(f"{command}: {done.stdout}{done.stderr}")
        code = server.stop()
        if code:
            problems.append(f"it stopped with {code}")


def seed_of_commit() -> int:
    """Return a seed that differs with every commit; `FUZZ_SEED` overrides it."""
    given = os.environ.get("FUZZ_SEED")
    if given:
        return int(given)
    asked = ["git", "rev-parse", "HEAD"]
    here = Path(__file__).parent
    done = subprocess.run(asked, cwd=here, capture_output=True, text=True, check=False)
    return int(done.stdout[:12], 16) if done.returncode == 0 else int(time.time())


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.up.fuzz")
    parser.add_argument("--submissions", type=int, default=SUBMISSIONS)
    parser.add_argument("--seed", type=int, default=None)
    given = parser.parse_args()
    seed = seed_of_commit() if given.seed is None else given.seed
    with tempfile.TemporaryDirectory(prefix="leasehold-fuzz-", ignore_cleanup_errors=True) as root:
        Path(root).chmod(0o755)
        fuzz = Fuzz(Path(root), seed=seed)
        began = time.monotonic()
        try:
            found = fuzz.play(given.submissions)
        finally:
            fuzz.server.end()
    print(f"{found} in {time.monotonic() - began:.0f} s")
    for problem in found.problems:
        print(problem)
    return 1 if found.problems else 0


if __name__ == "__main__":
    sys.exit(main())
