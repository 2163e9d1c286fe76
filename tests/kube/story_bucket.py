"""The archive in a bucket of a real S3 server: closed leases leave etcd while Runs go on, and
reports are the same before and after."""

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
    """The folder with the bucket's objects; the environment has the credentials to reach it."""
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


def test_closed_leases_move_to_bucket_and_reports_stay_the_same(
    plane: Plane, bucket: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEASEHOLD_CACHE", str(tmp_path / "first"))
    plane.kubelets.add("n1", "n2")
    first = plane.controller("first")
    long, short = job("long", 8), job("short", 8)
    plane.kubectl.ok("apply", "-f", plane.kubectl.file(budget(), long, short))
    plane.until_phase("long", "Running")
    run = plane.until_phase("short", "Running")
    time.sleep(2)  # kubelets report whole seconds, and reports leave out a use of zero seconds
    plane.exit_all(run["metadata"]["uid"])
    plane.until_phase("short", "Completed")
    before = _exported_rows(plane)
    assert first.stop() == 0
    # Another replica with an empty disk takes over and compacts.
    monkeypatch.setenv("LEASEHOLD_CACHE", str(tmp_path / "second"))
    plane.answering("second")
    plane.until(
        lambda: [each["spec"]["runRef"]["name"] for each in plane.all("leases")] == ["long"]
    )
    assert [path.name for path in bucket.glob("segment-*.json")]
    assert plane.run("long")["status"]["phase"] == "Running"
    # The reader has its own cache; live and archived records are one ledger.
    monkeypatch.setenv("LEASEHOLD_CACHE", str(tmp_path / "third"))
    assert _exported_rows(plane) == before
    found = _ledger(plane, "ledger", "verify")
    assert found.stdout.startswith("ledger verify: ok ("), found.stdout + found.stderr
    report = plane.leasehold("runs", "report", "gpu-hours", "--by", "run")
    assert "team/short" in report.stdout, report.stdout + report.stderr
    assert "team/long" in report.stdout
    # The ledger continues; leases that close now leave etcd at an explicit compaction.
    uid = plane.run("long")["metadata"]["uid"]
    plane.exit_all(uid)
    plane.until_phase("long", "Completed")
    words = ("ledger", "compact", "--kubeconfig", str(plane.cluster.kubeconfig()))
    asked = plane.leasehold(*words)
    assert asked.returncode == 0, asked.stderr
    assert plane.all("leases") == []
    assert [path.name for path in bucket.glob("leases-*.jsonl") if '"long"' in path.read_text()]
    found = _ledger(plane, "ledger", "verify")
    assert found.stdout.startswith("ledger verify: ok ("), found.stdout + found.stderr


def test_bucket_with_wrong_credentials_is_logged_and_leases_stay(
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
    assert len(plane.all("leases")) == 1  # leases that are not archived stay
    found = _ledger(plane, "ledger", "verify")
    assert found.returncode != 0
    assert f"{URL}: " in found.stderr
    assert "Traceback" not in found.stderr


def _ledger(plane: Plane, *words: str) -> "subprocess.CompletedProcess[str]":
    kubeconfig = str(plane.cluster.kubeconfig())
    return plane.leasehold(*words, "--kubeconfig", kubeconfig, "--archive", URL)


def _exported_rows(plane: Plane) -> list[str]:
    """Return the exported row of each lease of the completed run."""
    found = _ledger(plane, "ledger", "export", "--format", "csv")
    assert found.returncode == 0, found.stderr
    rows = [line for line in found.stdout.splitlines() if ",short," in line]
    assert rows
    return rows
