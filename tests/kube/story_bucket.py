"""The archive in a bucket of a real S3 server: what is closed leaves etcd while the fleet works,
and answers are the same before and after."""

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.apiserver.server import program
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.plane import Plane, budget, free_port, job, plane_on

KEY, SECRET = "leasehold-test", "not-a-secret"
URL = "s3://leases/fleet-a"
SETTINGS = f"""
ledger.archive: {URL}
ledger.keepClosed: 0s
ledger.maxObjects: 4
tenure: {{take: 3s, hold: 2s, softStop: 1500ms, renew: 500ms, timeout: 500ms}}
"""


@pytest.fixture
def bucket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Its objects, as files; whoever is started has what is needed to reach it."""
    place, port = tmp_path / "s3", free_port()
    (place / "leases").mkdir(parents=True)
    server = subprocess.Popen(
        [program("versitygw"), "--access", KEY, "--secret", SECRET, "--port", f"127.0.0.1:{port}",
         "posix", str(place)],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    for name, value in (
        ("AWS_ACCESS_KEY_ID", KEY), ("AWS_SECRET_ACCESS_KEY", SECRET), ("AWS_REGION", "us-east-1"),
        ("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}"),
    ):  # fmt: skip
        monkeypatch.setenv(name, value)
    yield place / "leases" / "fleet-a"
    server.kill()
    server.wait()


@pytest.fixture
def plane(cluster: Cluster, bucket: Path, tmp_path: Path) -> Iterator[Plane]:
    cluster.install()
    with plane_on(cluster, tmp_path, SETTINGS) as found:
        yield found
        found.stop_answering()


def test_what_is_closed_leaves_the_cluster_and_no_answer_changes(
    plane: Plane, bucket: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEASEHOLD_CACHE", str(tmp_path / "first"))
    plane.kubelets.add("n1", "n2")
    first = plane.controller("first")
    long, short = job("long", 8), job("short", 8)
    plane.kubectl.ok("apply", "-f", plane.kubectl.file(budget(), long, short))
    plane.until_phase("long", "Running")
    run = plane.until_phase("short", "Running")
    time.sleep(2)  # kubelets tell whole seconds, and no time at all is in no report
    plane.exit_all(run["metadata"]["uid"])
    plane.until_phase("short", "Completed")
    before = _hours(plane)
    assert first.stop() == 0
    # Another replica, with nothing on its disk; it finds that there is much to compact.
    monkeypatch.setenv("LEASEHOLD_CACHE", str(tmp_path / "second"))
    plane.answering("second")
    plane.until(
        lambda: [each["spec"]["runRef"]["name"] for each in plane.all("leases")] == ["long"]
    )
    assert [path.name for path in bucket.glob("segment-*.json")]
    assert plane.run("long")["status"]["phase"] == "Running"
    # Whoever looks has a copy of his own; live and archived are one ledger.
    monkeypatch.setenv("LEASEHOLD_CACHE", str(tmp_path / "third"))
    assert _hours(plane) == before
    found = _asked(plane, "ledger", "verify")
    assert found.stdout.startswith("ledger verify: ok ("), found.stdout + found.stderr
    report = plane.leasehold("runs", "report", "gpu-hours", "--by", "run")
    assert "team/short" in report.stdout, report.stdout + report.stderr
    assert "team/long" in report.stdout
    # And it goes on from there; what is closed now leaves when somebody asks.
    uid = plane.run("long")["metadata"]["uid"]
    plane.exit_all(uid)
    plane.until_phase("long", "Completed")
    words = ("ledger", "compact", "--kubeconfig", str(plane.cluster.kubeconfig()))
    asked = plane.leasehold(*words)
    assert asked.returncode == 0, asked.stderr
    assert plane.all("leases") == []
    assert [path.name for path in bucket.glob("leases-*.jsonl") if '"long"' in path.read_text()]
    found = _asked(plane, "ledger", "verify")
    assert found.stdout.startswith("ledger verify: ok ("), found.stdout + found.stderr


def test_a_bucket_that_cannot_be_reached_is_told_and_costs_nothing(
    plane: Plane, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    plane.kubelets.add("n1")
    controller = plane.controller()
    plane.kubectl.ok("apply", "-f", plane.kubectl.file(budget(), job("train", 8)))
    run = plane.until_phase("train", "Running")
    plane.exit_all(run["metadata"]["uid"])
    plane.until_phase("train", "Completed")
    plane.until(lambda: URL in controller.log())
    assert len(plane.all("leases")) == 1  # nothing leaves that is not archived
    found = _asked(plane, "ledger", "verify")
    assert found.returncode != 0
    assert f"{URL}: " in found.stderr
    assert "Traceback" not in found.stderr


def _asked(plane: Plane, *words: str) -> "subprocess.CompletedProcess[str]":
    kubeconfig = str(plane.cluster.kubeconfig())
    return plane.leasehold(*words, "--kubeconfig", kubeconfig, "--archive", URL)


def _hours(plane: Plane) -> list[str]:
    """Of the run that is over: a row for each of its leases."""
    found = _asked(plane, "ledger", "export", "--format", "csv")
    assert found.returncode == 0, found.stderr
    rows = [line for line in found.stdout.splitlines() if ",short," in line]
    assert rows
    return rows
