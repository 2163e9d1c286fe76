"""A real torchrun job survives a grow, a shrink and two lost nodes.

`make test-torch` runs `python -m tests.torchrun.elastic`. It needs PyTorch and takes minutes, so
`make test` does not run it (no file here is named `test_...`). The same training runs twice with
the files of `examples/torch`: as a fixed gang without disturbance, and as an elastic gang with all
of these events. The test observes both only through user commands and the output of the ranks. The
loss at a step does not depend on the world size, so both must print the same losses.
"""

import re
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tests.torchrun.meeting_point import host_of_store
from tests.torchrun.training_log import TrainingLog
from tests.up.server import Up

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "torch"
CONFIG = "resize.interval: 0s\n"  # the default is ten minutes between two resizes
NAMESPACE, FIXED, ELASTIC = "vision", "fixed", "elastic"
STEPS, EVERY = 240, 5  # the same values as in the examples
PATIENCE_S = 120.0  # for one event; importing PyTorch takes long on a slow machine
PAUSE_S = 0.3
LOSS_TOLERANCE = 1e-3  # relative to the loss: the order of sums differs
_WORLD = re.compile(r"(\d+) ranks from step (\d+)")


class Story:
    """The elastic run and its observed output."""

    def __init__(self, server: Up) -> None:
        self.server = server
        self.log = TrainingLog(server, ELASTIC, NAMESPACE)
        self._began = time.monotonic()

    def say(self, text: str) -> None:
        print(f"{time.monotonic() - self._began:6.1f} s  {text}", flush=True)

    def runs(self, *arguments: str) -> None:
        self.say(f"$ kubectl runs {' '.join(arguments)}")
        self.server.runs(*arguments)

    def fence(self, node: str) -> None:
        self.say(f"$ leasehold fence {node}")
        self.server.cli("leasehold", "fence", node)

    def wait(self, what: str, holds: Callable[[], bool]) -> None:
        """Read the log until `holds` returns true; the run must stay in its first attempt."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            row = self.server.run(ELASTIC, NAMESPACE)
            self.log.look()
            if holds():
                return
            assert row["phase"] == "Running", f"while {what} was waited for: {row}"
            assert row["attempt"] == 1, f"while {what} was waited for: {row}"
            assert time.monotonic() < deadline, f"waited {PATIENCE_S:.0f} s for {what}: {row}"
            time.sleep(PAUSE_S)

    def nodes(self) -> set[str]:
        """Return the nodes of the run's pods according to its leases."""
        leases = self.server.rows("leases", ELASTIC, "-n", NAMESPACE)
        return {
            str(each["node"])
            for each in leases
            if each["role"] == "Active" and each["end"] is None and each["ending"] is None
        }

    def await_world(self, size: int, *, without: str = "") -> None:
        """Wait until `size` ranks, one on each leased node, have made enough new steps together to
        include a checkpoint."""
        since = self.log.step
        found: dict[str, int] = {}

        def formed() -> bool:
            nodes = self.nodes()
            if len(nodes) != size or without in nodes:
                return False
            together = 0
            for step in range(since + 1, self.log.step + 1):
                ranks = self.log.ranks_at(step, size)
                if ranks.keys() == nodes and set(ranks.values()) == set(range(size)):
                    found.update(ranks)
                    together += 1
            return together > EVERY

        self.wait(f"{size} ranks", formed)
        ranks = ", ".join(f"{rank} on {node}" for rank, node in _by_rank(found))
        first = [line.first for line in self.log.lines if line.first is not None][-1]
        how = f"go on from step {first}" if first else "begin"
        self.say(f"  {size} ranks {how}: {ranks}; now at step {self.log.step}")
        assert self.log.lost_steps() <= EVERY, f"{self.log.lost_steps()} steps were made again"


def _by_rank(ranks: dict[str, int]) -> list[tuple[int, str]]:
    return sorted((rank, node) for node, rank in ranks.items())


def undisturbed(server: Up) -> dict[int, float]:
    """Return the loss at each step of the fixed gang, which is not disturbed."""
    server.runs("submit", "-f", str(EXAMPLES / "fixed.yaml"))
    log = TrainingLog(server, FIXED, NAMESPACE)

    def over() -> bool:
        return server.run(FIXED, NAMESPACE).get("phase") in ("Completed", "Failed")

    server.wait("the fixed gang to end", over, for_s=PATIENCE_S)
    log.look()
    assert server.run(FIXED, NAMESPACE)["phase"] == "Completed", log.lines[-5:]
    losses = {line.step: line.loss for line in log.lines if line.step}
    assert list(losses) == list(range(1, STEPS + 1)), "a step is missing"
    assert losses[STEPS] < losses[1] / 2, "it learnt nothing"
    assert {(line.rank, line.world) for line in log.lines} == {(0, 2), (1, 2)}
    return losses


def play(server: Up) -> None:
    server.work.mkdir()
    home = server.work / NAMESPACE
    home.mkdir()
    shutil.copy(EXAMPLES / "train.py", home)
    server.start()
    story = Story(server)
    story.say(server.said[0].partition(" at ")[0] + " with 8 virtual nodes of one GPU")
    server.runs("submit", "-f", str(EXAMPLES / "team.yaml"))
    expected = undisturbed(server)
    story.say(f"a fixed gang of 2 made {STEPS} steps; loss {expected[1]} -> {expected[STEPS]}")

    story.say("$ kubectl runs submit -f examples/torch/elastic.yaml")
    server.runs("submit", "-f", str(EXAMPLES / "elastic.yaml"))
    story.await_world(2)
    story.runs("grow", ELASTIC, "--to", "4", "-n", NAMESPACE)
    story.await_world(4)
    story.runs("shrink", ELASTIC, "--to", "3", "-n", NAMESPACE)
    story.await_world(3)
    host = host_of_store(server.data)
    other = min(story.nodes() - {host})
    story.fence(other)
    story.await_world(3, without=other)
    host = host_of_store(server.data)
    assert host in story.nodes(), f"no pod holds the rendezvous store: {host!r}"
    story.say(f"{host} holds the rendezvous of all others")
    survivors = story.nodes() - {host}
    story.log.restarted.clear()
    story.fence(host)
    story.await_world(3, without=host)
    assert story.log.restarted == survivors, "all pods must restart without the rendezvous"
    story.say(f"  the pods on {' and '.join(sorted(survivors))} were started again in place")
    story.wait("the end", lambda: server.run(ELASTIC, NAMESPACE)["phase"] == "Completed")
    check(story, expected)


def check(story: Story, expected: dict[int, float]) -> None:
    """Check the ended run, the output of its ranks, its leases and the ledger."""
    server = story.server
    story.log.look()
    row = server.run(ELASTIC, NAMESPACE)
    assert (row["phase"], row["attempt"]) == ("Completed", 1), row
    lines = story.log.lines
    assert story.log.step == STEPS
    began = sorted((line.rank, line.world) for line in lines if line.first == 0)
    assert began == [(0, 2), (1, 2)], f"another rank began at step 0: {began}"
    told = [line for line in lines if line.step]
    wrong = [
        line
        for line in told
        if abs(line.loss - expected[line.step]) > LOSS_TOLERANCE * expected[line.step]
    ]
    assert not wrong, f"the losses differ from the fixed gang: {wrong[:5]}"
    (past,) = {line.story for line in lines if line.story}
    story.say(f"Completed in attempt 1 after {STEPS} steps: {past}")
    worlds = [(int(size), int(first)) for size, first in _WORLD.findall(past)]
    assert worlds[0] == (2, 0), past
    assert all(first % EVERY == 0 for _, first in worlds), past
    # A slow pod may cause a smaller world before the expected one.
    assert _is_within([2, 4, 3, 3, 3], [size for size, _ in worlds]), past
    story.say(f"{len(told)} lines tell of losses, each as in the fixed gang; "
              f"{story.log.lost_steps()} steps at most were made again")  # fmt: skip
    check_leases(server)
    for command in (["ledger", "verify"], ["audit"]):
        said = server.cli("leasehold", *command, "--data", str(server.data)).stdout
        story.say(said.strip().splitlines()[0])
    story.say(f"$ kubectl runs leases {ELASTIC} -n {NAMESPACE}")
    print(server.runs("leases", ELASTIC, "-n", NAMESPACE).stdout, end="", flush=True)


def _is_within(wanted: list[int], found: list[int]) -> bool:
    """Return whether `found` has all of `wanted` in this order, perhaps with others between."""
    left = iter(found)
    return all(each in left for each in wanted)


def check_leases(server: Up) -> None:
    leases = server.rows("leases", ELASTIC, "-n", NAMESPACE)
    assert {each["attempt"] for each in leases} == {1}
    seen = Counter((each["role"], each["opened"], each["closed"]) for each in leases)
    active = {
        word: sum(count for key, count in seen.items() if key[0] == "Active" and word in key)
        for word in ("Start", "Grow", "Swap", "Shrink", "NodeFailure", "Completed")
    }
    assert active == {
        "Start": 2, "Grow": 2, "Swap": 2, "Shrink": 1, "NodeFailure": 2, "Completed": 3,
    }, seen  # fmt: skip
    assert sum(count for key, count in seen.items() if key[::2] == ("Spare", "Swap")) == 2, seen


def main() -> int:
    if shutil.which("torchrun") is None:
        print("torchrun is not on the path; Debian's package python3-torch has it", file=sys.stderr)
        return 2
    # A folder that other users can enter: with root, jobs run as other users.
    with tempfile.TemporaryDirectory(prefix="leasehold-torch-") as folder:
        Path(folder).chmod(0o755)
        server = Up(Path(folder), "--fleet", str(EXAMPLES / "fleet.yaml"), config=CONFIG)
        try:
            play(server)
        except AssertionError as wrong:
            print(f"FAILED: {wrong}", file=sys.stderr)
            said = server.runs("logs", ELASTIC, "-n", NAMESPACE, "--tail", "20", ok=False)
            print(said.stdout + said.stderr, file=sys.stderr)
            return 1
        finally:
            server.end()
    print("ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
