"""A busy hour in a few minutes, with the control plane killed repeatedly at random moments.

`python -m tests.up.kills --kills 200` runs the long test and prints its findings; a short one is
part of the suite. Each job writes its start and end to a journal. The test compares the journal
with the leases, as an independent count of the real use.
"""

import argparse
import random
import sys
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.up.server import OWNER, Up, team

FLEET = """
fleet:
  - {domain: a, nodes: 4, gpus: 4, flavor: virtual, region: r, cluster: c}
  - {domain: b, nodes: 2, gpus: 4, flavor: virtual, region: r, cluster: c}
"""
# No run waits long enough to preempt others: every failed run fails by its own exit code.
CONFIG = "retry.backoff: 200ms\nbind.backoff: 200ms\n"
TOLERANCE_MS = 100
# The job writes a line at its start and one at its end, also after SIGTERM: run, pod and time.
# The start is that of the process according to the kernel, not when the interpreter was ready.
JOURNAL = """
import os, signal, sys, time
def began():
    with open("/proc/self/stat", "rb") as file:
        ticks = int(file.read().rpartition(b")")[2].split()[19])
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return int((time.time() - age) * 1000)
out = os.open("journal", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
def say(word, at):
    text = f"{word} {os.environ['LEASEHOLD_POD_UID']} {os.environ['LEASEHOLD_RUN']} "
    text += f"{os.environ['LEASEHOLD_ATTEMPT']} {os.environ['LEASEHOLD_LEASES']} "
    os.write(out, f"{text}{at}\\n".encode())
def leave(*_):
    say("end", time.time_ns() // 1000000)
    os._exit(143)
signal.signal(signal.SIGTERM, leave)
say("start", began())
time.sleep(float(sys.argv[1]))
say("end", time.time_ns() // 1000000)
os._exit(int(sys.argv[2]))
"""


@dataclass
class Lifetime:
    run: str
    attempt: int
    leases: tuple[str, ...]
    starts: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)


@dataclass
class Findings:
    kills: int = 0
    runs: int = 0
    pods: int = 0
    leases: int = 0
    worst_ms: int = 0
    in_outage: int = 0
    problems: list[str] = field(default_factory=list)


class Storm:
    def __init__(self, folder: Path, *, seed: int) -> None:
        fleet = folder / "fleet.yaml"
        fleet.write_text(FLEET)
        self.server = Up(folder, "--fleet", str(fleet), "--log-level", "warning", config=CONFIG)
        self._random = random.Random(seed)
        self._submitted: dict[str, int] = {}  # name -> the exit code of its jobs
        self._outages: list[tuple[int, int]] = []
        self._stopping = threading.Event()
        self.found = Findings()

    def play(self, kills: int) -> Findings:
        server = self.server
        server.start()
        server.submit(*team())
        self._job = server.folder / "job.py"
        self._job.write_text(JOURNAL)
        self._job.chmod(0o644)
        submitter = threading.Thread(target=self._keep_busy)
        submitter.start()
        try:
            for _ in range(kills):
                time.sleep(self._random.uniform(0.05, 1.2))
                self._kill_and_check()
        finally:
            self._stopping.set()
            submitter.join()
        self._settle()
        self._compare()
        return self.found

    # While the server is killed.

    def _keep_busy(self) -> None:
        """Submit runs until the test stops; a name counts as used only once its run is created."""
        number = 0
        while not self._stopping.is_set():
            manifest, code = self._random_run(number)
            if self._created(manifest):
                self._submitted[f"r{number}"] = code
                number += 1
            self._stopping.wait(self._random.uniform(0.05, 0.4))

    def _created(self, manifest: dict[str, object]) -> bool:
        """Create the run with a separate client; retry while the server is down."""
        from leasehold.app.failure import Failure
        from leasehold.cli.runs.server import connect

        while not self._stopping.is_set():
            try:
                client = connect(str(self.server.kubeconfig), timeout_s=5)
                try:
                    client.send("POST", client.run_path("team"), manifest)
                finally:
                    client.close()
            except Failure as failure:
                if failure.status == 409:
                    return True  # an earlier attempt succeeded, but its answer was lost
                if failure.status not in (0, 503, 504):
                    self.found.problems.append(f"submission refused: {failure.message}")
                    return False
                time.sleep(0.05)
                continue
            return True
        return False

    def _random_run(self, number: int) -> tuple[dict[str, object], int]:
        draw = self._random
        pods, gpus = draw.choice([(1, 1), (1, 2), (2, 1), (2, 4), (3, 2), (1, 4)])
        code = 3 if draw.random() < 0.1 else 0
        lasts = draw.choice([0.05, 0.3, 0.8, 2.0])
        spec: dict[str, object] = {
            "owner": OWNER,
            "resources": {"gpuType": "virtual", "totalGPUs": pods * gpus, "gpusPerPod": gpus},
            "runtime": {"retries": 1 if code else 0, "gracePeriod": "2s"},
            "template": {
                "spec": {
                    "containers": [
                        {
                            "name": "main",
                            "image": "none",
                            "command": [
                                "/usr/bin/python3", "-S", "-E", str(self._job), str(lasts),
                                str(code),
                            ],
                        }
                    ]
                }
            },
        }  # fmt: skip
        return {
            "apiVersion": "rq.davidlangworthy.io/v1",
            "kind": "Run",
            "metadata": {"name": f"r{number}", "namespace": "team"},
            "spec": spec,
        }, code

    def _kill_and_check(self) -> None:
        began = time.time_ns() // 1_000_000
        self.server.kill()
        self.found.kills += 1
        self._check("ledger", "verify")
        self.server.start()
        self._outages.append((began - 50, time.time_ns() // 1_000_000 + 300))
        deadline = time.monotonic() + 30
        while not self._succeeds("audit"):
            if time.monotonic() > deadline:
                self._check("audit")
                return
            time.sleep(0.1)

    def _succeeds(self, *command: str) -> bool:
        done = self.server.cli("leasehold", *command, "--data", str(self.server.data), ok=False)
        return done.returncode == 0

    def _check(self, *command: str) -> None:
        done = self.server.cli("leasehold", *command, "--data", str(self.server.data), ok=False)
        if done.returncode:
            said = f"after kill {self.found.kills}: {' '.join(command)}: {done.stdout}{done.stderr}"
            self.found.problems.append(said)

    # After all runs have ended.

    def _settle(self) -> None:
        def is_quiet() -> bool:
            phases = {str(row["name"]): row["phase"] for row in self.server.rows("list", "-A")}
            return set(phases) >= set(self._submitted) and not set(phases.values()) - {
                "Completed", "Failed",
            }  # fmt: skip

        self.server.wait("everything to end", is_quiet, for_s=180)
        self._check("ledger", "verify")
        self._check("audit")

    def _compare(self) -> None:
        found = self.found
        rows = {str(row["name"]): row for row in self.server.rows("list", "-A")}
        for name, code in self._submitted.items():
            wanted = "Failed" if code else "Completed"
            if rows[name]["phase"] != wanted:
                found.problems.append(f"{name} is {rows[name]['phase']}, not {wanted}")
        found.runs = len(rows)
        lives = self._lives()
        found.pods = len(lives)
        leases = {
            str(each["lease"]): each
            for each in self.server.rows("leases", "--since", "12h", "--closed")
        }
        for uid, life in lives.items():
            if len(life.starts) != 1 or len(life.ends) > 1:
                found.problems.append(f"pod {uid} of {life.run} ran {len(life.starts)} times")
        told = {lease for life in lives.values() for lease in life.leases}
        for name, lease in leases.items():
            if name not in told and lease["closed"] == "Completed":
                found.problems.append(f"lease {name} was completed by nobody")
        for life in lives.values():
            if life.starts and life.ends:
                self._compare_lease(life, leases)

    def _compare_lease(self, life: Lifetime, leases: dict[str, dict[str, object]]) -> None:
        """Compare start and end of a job with its lease; an outage explains a difference."""
        from leasehold.core.units import parse_instant

        lease = leases.get(life.leases[0])
        if lease is None:
            self.found.problems.append(f"{life.run} ran under {life.leases[0]}, which is unknown")
            return
        start, end = parse_instant(str(lease["start"])), parse_instant(str(lease["end"]))
        assert start is not None
        assert end is not None
        self.found.leases += 1
        off = abs((end - start) - (life.ends[0] - life.starts[0]))
        off -= sum(
            max(0, min(life.starts[0], until) - max(start, since)) for since, until in self._outages
        )
        if off + TOLERANCE_MS < abs((end - start) - (life.ends[0] - life.starts[0])):
            self.found.in_outage += 1
        self.found.worst_ms = max(self.found.worst_ms, off)
        if off > TOLERANCE_MS:
            self.found.problems.append(
                f"lease {life.leases[0]} of {life.run}: {end - start} ms, its job "
                f"{life.ends[0] - life.starts[0]} ms; it began {life.starts[0] - start} ms after "
                f"its lease and ended {end - life.ends[0]} ms before; closed {lease['closed']}, "
                f"{min(abs(start - since) for since, _ in self._outages)} ms from a kill"
            )

    def _lives(self) -> dict[str, Lifetime]:
        lives: dict[str, Lifetime] = {}
        journal = self.server.work / "team" / "journal"
        for line in journal.read_text().splitlines():
            word, uid, run, attempt, leases, at = line.split()
            life = lives.setdefault(uid, Lifetime(run, int(attempt), tuple(leases.split(","))))
            (life.starts if word == "start" else life.ends).append(int(at))
        return lives


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.up.kills")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="leasehold-storm-") as root:
        folder = Path(root)
        folder.chmod(0o755)
        storm = Storm(folder, seed=asked.seed)
        try:
            found = storm.play(asked.kills)
        finally:
            storm.server.end()
    print(
        f"{found.kills} kills, {found.runs} runs, {found.pods} pods; {found.leases} leases beside "
        f"their jobs: {found.worst_ms} ms apart at most ({found.in_outage} began in an outage)"
    )
    for problem in found.problems[:50]:
        print(f"  {problem}")
    print(f"{len(found.problems)} problems")
    return 1 if found.problems else 0


if __name__ == "__main__":
    sys.exit(main())
