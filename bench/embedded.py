"""`leasehold up` under load, compared with what the machine can do at most, in wall seconds.

Measures how many Runs per second are submitted through REST, and how many are started. The
yardsticks are plain process spawning and plain durable inserts, measured in the same run. Then a
store with many old runs is opened, asked, and watched while idle. Called by `bench.__main__`.
"""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median

import apsw

from bench import bigstore, rest_client

BIN = Path(sys.executable).parent
BUILD = Path("build").resolve()
POLL_S = 0.02
REST_S = 1.0
SPAWNS, INSERTS = 400, 3_000
SUBMISSIONS, STARTS, ENDS = 600, 500, 600
ROUNDS = 3
RUNS, LEASES = 10_000, 100_000
IDLE_S = 10.0
PATIENCE_S = 300.0
JOB_ENV = {"PATH": "/usr/bin:/bin", "HOME": "/", "LANG": "C.UTF-8"}  # locales would double the cost
QUICK, LASTING = ("/bin/true",), ("/bin/sleep", "600")
SPACE = (
    "/api/v1/namespaces",
    {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "t"}},
)
BUDGET = (
    "/apis/rq.davidlangworthy.io/v1/namespaces/t/budgets",
    {
        "apiVersion": "rq.davidlangworthy.io/v1",
        "kind": "Budget",
        "metadata": {"name": "b"},
        "spec": {
            "owner": "org:t",
            "envelopes": [{"name": "e", "flavor": "virtual", "concurrency": 512}],
        },
    },
)


class Up:
    """Runs `leasehold up` in a process of its own."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self.data = root / "data"
        (root / "fleet.yaml").write_text(bigstore.FLEET)

    def start(self) -> float:
        """Start the server; return the seconds until it prints that it is up."""
        began = time.perf_counter()
        self.process = subprocess.Popen(
            [BIN / "leasehold", "up", "--data", self.data, "--work", self._root / "work", "--fleet",
             self._root / "fleet.yaml", "--port", "0", "--log-level", "warning", "--end-jobs"],
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self.process.stdout is not None
        assert self.process.stdout.readline().startswith("leasehold is up")
        return time.perf_counter() - began

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(PATIENCE_S)
        assert self.process.stdout is not None
        self.process.stdout.close()

    def runs(self, *arguments: str) -> str:
        env = {**os.environ, "KUBECONFIG": str(self.data / "kubeconfig")}
        done = subprocess.run([BIN / "kubectl-runs", *arguments], env=env, capture_output=True,
                              text=True, check=True)  # fmt: skip
        return done.stdout

    def create(self, path: str, obj: object) -> None:
        target = rest_client.Target(self.data / "kubeconfig")
        asyncio.run(rest_client.send_all(target, [target.post(path, obj)], 1))

    def submit(
        self, owner: str, prefix: str, count: int, clients: int, command: Sequence[str] = QUICK
    ) -> float:
        """Submit `count` Runs over `clients` connections; return the submissions per second, as
        measured by the client."""
        done = subprocess.run(
            [sys.executable, "-m", "bench.rest_client", self.data / "kubeconfig", "t", owner,
             prefix, str(count), str(clients), *command],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        return count / float(done.stdout)

    @property
    def mib(self) -> float:
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) / 1024
        raise AssertionError("the kernel says nothing of its memory")

    @property
    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _disk() -> Path:
    """Return a folder on a disk without other load, as a data folder would have it.

    This is the build folder if the users that jobs run as can enter it, otherwise /var/tmp. /tmp
    may be in memory, and other programs use it much."""
    BUILD.mkdir(exist_ok=True)
    is_open = all(folder.stat().st_mode & 0o001 for folder in (BUILD, *BUILD.parents))
    return BUILD if is_open else Path("/var/tmp")


@contextmanager
def place() -> Iterator[Path]:
    """Yield a folder for all servers of a measurement, and remove it at the end. It is not removed
    earlier, because a file system creates files slowly just after it has deleted many."""
    root = Path(tempfile.mkdtemp(prefix="leasehold-bench-", dir=_disk()))
    root.chmod(0o755)
    try:
        yield root
    finally:
        shutil.rmtree(root)


@contextmanager
def server(root: Path) -> Iterator[Up]:
    root.mkdir()
    up = Up(root)
    try:
        yield up
    finally:
        if up.process.poll() is None:
            up.stop()


def spawns_per_s() -> float:
    """Return how many processes per second can be spawned one after another. Each runs a job's
    program with a job's environment, in a session of its own, with its output in a file."""
    with tempfile.TemporaryFile(dir=_disk()) as out:
        began = time.perf_counter()
        for _ in range(SPAWNS):
            subprocess.run(["/bin/sleep", "0"], stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                           env=JOB_ENV, start_new_session=True, check=True)  # fmt: skip
        return SPAWNS / (time.perf_counter() - began)


def inserts_per_s() -> float:
    """Return how many rows of the size of a Run can be inserted per second, each in a durable
    transaction of its own."""
    with tempfile.TemporaryDirectory(prefix="leasehold-bench-", dir=_disk()) as root:
        connection = apsw.Connection(str(Path(root) / "plain.sqlite"))
        connection.pragma("journal_mode", "wal")
        connection.pragma("synchronous", 2)
        connection.execute("CREATE TABLE rows (id INTEGER PRIMARY KEY, body BLOB)")
        body = b"x" * 1500
        began = time.perf_counter()
        for _ in range(INSERTS):
            connection.execute("INSERT INTO rows (body) VALUES (?)", (body,))
        took = time.perf_counter() - began
        connection.close()
    return INSERTS / took


def load() -> dict[str, float]:
    """Measure, on empty data folders, submissions, starts and complete runs per second.

    Other load on the machine varies. So the yardsticks are measured before, between and after, and
    their medians count."""
    _use_every_core()
    with place() as root:
        return _load(root)


def _load(root: Path) -> dict[str, float]:
    spawns, inserts = [spawns_per_s()], [inserts_per_s()]
    found = {}
    with server(root / "submissions") as up:
        found["up_ready_empty_s"] = up.start()
        up.create(*SPACE)
        # These have no payer yet: each is stored, considered, and waits.
        found["rest_submit_1_per_s"] = up.submit("org:none", "one", SUBMISSIONS, 1)
        found["rest_submit_32_per_s"] = up.submit("org:none", "many", SUBMISSIONS, 32)
        spawns.append(spawns_per_s())
        inserts.append(inserts_per_s())
    starts = []
    for number in range(ROUNDS):  # one second each; a median, because other load may slow one
        starts.append(_starts_per_s(root / f"starts-{number}"))
        spawns.append(spawns_per_s())
        inserts.append(inserts_per_s())
    found["runs_started_per_s"] = median(starts)
    with server(root / "lives") as up:
        up.start()
        up.create(*SPACE)
        up.create(*BUDGET)
        began = time.perf_counter()
        up.submit("org:t", "live", ENDS, 32)
        _until(lambda: _count(up, "Run", "Completed") == ENDS)
        found["runs_completed_per_s"] = ENDS / (time.perf_counter() - began)
    spawns.append(spawns_per_s())
    inserts.append(inserts_per_s())
    found["plain_spawns_per_s"], found["plain_inserts_per_s"] = median(spawns), median(inserts)
    return found


def _starts_per_s(root: Path) -> float:
    """Return how many runs are started per second. The runs wait only for a Budget, and the time
    counts from the creation of that Budget until all pods run."""
    with server(root) as up:
        up.start()
        up.create(*SPACE)
        up.submit("org:t", "go", STARTS, 32, LASTING)
        _until(lambda: _count(up, "Run", "Pending") == STARTS)
        time.sleep(REST_S)  # until all their statuses are written
        began = time.perf_counter()
        up.create(*BUDGET)
        # Three changes per pod: created, claimed, running. Reading the pods would cost more.
        _until(lambda: _changes(up, "Pod") >= 3 * STARTS)
        _until(lambda: _count(up, "Pod", "Running") == STARTS)
        return STARTS / (time.perf_counter() - began)


def past() -> dict[str, float]:
    """Measure a server whose store has ten thousand runs and a hundred thousand closed leases."""
    _use_every_core()
    found = {}
    with place() as root, server(root / "past") as up:
        bigstore.make(up.data, RUNS, LEASES)
        found["up_ready_big_s"] = up.start()
        for name, arguments in (
            ("list_10k_s", ("list", "-A")),
            ("budgets_usage_s", ("budgets", "usage")),
            ("leases_since_s", ("leases", "--since", "1h")),
        ):
            found[name] = min(_timed(lambda: up.runs(*arguments)) for _ in range(3))  # noqa: B023
        time.sleep(2)
        before, began = up.cpu_s, time.perf_counter()
        time.sleep(IDLE_S)
        found["idle_cpu_percent"] = 100 * (up.cpu_s - before) / (time.perf_counter() - began)
        found["server_mib"] = up.mib
    return found


def _use_every_core() -> None:
    """Let this process use all cores, even if its parent process is restricted to one."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, range(os.cpu_count() or 1))


def _count(up: Up, kind: str, phase: str) -> int:
    asked = "SELECT count(*) FROM objects WHERE kind = ? AND CAST(body AS TEXT) LIKE ?"
    return _number(up, asked, (kind, f'%"phase":"{phase}"%'))


def _changes(up: Up, kind: str) -> int:
    return _number(up, "SELECT count(*) FROM history WHERE kind = ?", (kind,))


def _number(up: Up, asked: str, bound: tuple[str, ...]) -> int:
    """Return a number from the server's store file. Reading the file directly costs the server
    nothing."""
    connection = apsw.Connection(str(up.data / "store.sqlite"), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return int(connection.execute(asked, bound).get)
    finally:
        connection.close()


def _until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, "it takes too long"
        time.sleep(POLL_S)


def _timed(action: Callable[[], object]) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began
