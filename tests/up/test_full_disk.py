"""A disk that fills up: submissions are refused with a reason, nothing acknowledged is lost, and
the server recovers when there is space again. Needs root: the disk is a small tmpfs."""

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.up.conftest import Servers
from tests.up.raw import Raw
from tests.up.server import Up, job, marked, team

pytestmark = pytest.mark.root

SIZE = "8m"


@pytest.fixture
def small(up: Servers) -> Iterator[Up]:
    server = up()
    server.data.mkdir(mode=0o700)
    disk = ["mount", "-t", "tmpfs", "-o", f"size={SIZE},mode=700", "tmpfs", str(server.data)]
    subprocess.run(disk, check=True)
    try:
        yield server
    finally:
        server.end()
        subprocess.run(["umount", "-l", str(server.data)], check=True)


def fill(server: Up) -> Path:
    ballast = server.data / "ballast"
    file = os.open(ballast, os.O_WRONLY | os.O_CREAT)
    with contextlib.suppress(OSError):
        while True:
            os.write(file, b"x" * 4096)
    os.close(file)
    return ballast


def readyz(server: Up) -> tuple[int, str]:
    client = Raw(server.kubeconfig)
    try:
        status, said = client.ask("GET", "/readyz?verbose")
    finally:
        client.close()
    return status, str(said)


def submit_until_refused(server: Up) -> None:
    """Submit runs until the server refuses one because the disk is full."""
    path = server.folder / "more.yaml"
    for number in range(200):
        path.write_text(json.dumps(job(f"more{number}", "true")))
        if server.runs("submit", "-f", str(path), ok=False).returncode:
            return
    raise AssertionError("there was room for all of them")


def test_full_disk_is_reported_by_readyz_alert_and_metric_until_freed(small: Up) -> None:
    server = small.start()
    server.submit(*team())
    assert readyz(server)[0] == 200
    ballast = fill(server)
    submit_until_refused(server)
    status, said = readyz(server)
    assert status == 503
    assert "[-]store failed: the disk is full; free some space" in said
    log = server.folder / "up.log"
    server.wait("the alert", lambda: "alert: store: the disk is full" in log.read_text())
    client = Raw(server.kubeconfig)
    metrics = str(client.ask("GET", "/metrics")[1])
    client.close()
    [alerts] = [line for line in metrics.splitlines() if line.startswith("leasehold_alerts_total")]
    assert float(alerts.split()[1]) >= 1
    ballast.unlink()
    server.submit(job("after", "true"))
    server.wait_phase("after", "Completed")
    assert readyz(server)[0] == 200
    server.wait("the relief", lambda: "the problem is solved" in log.read_text())


def test_start_on_full_disk_fails_with_reason_and_keeps_jobs(small: Up) -> None:
    server = small.start()
    server.submit(*team(), job("long", "sleep 600"))
    server.wait_phase("long", "Running")
    server.kill()
    ballast = fill(server)
    done = subprocess.run(server.command(), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "the disk is full; free some space" in done.stderr
    assert "Traceback" not in done.stderr
    assert marked(server.data), "the job must keep running"
    ballast.unlink()
    server.start()
    assert server.run("long")["phase"] == "Running"


def test_start_on_full_disk_can_be_stopped(small: Up) -> None:
    server = small.start()
    server.submit(*team())
    server.kill()
    ballast = fill(server)
    with subprocess.Popen(
        server.command(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as starting:
        assert starting.stderr is not None
        assert "alert: store: the disk is full" in starting.stderr.readline()
        starting.send_signal(signal.SIGTERM)
        _, said = starting.communicate(timeout=30)
    assert starting.returncode == 0, said
    assert "Traceback" not in said
    ballast.unlink()


def test_output_lost_while_server_was_dead_is_reported(small: Up) -> None:
    server = small.start()
    script = (
        "while [ ! -e go ]; do sleep 0.05; done; "
        "i=0; while [ $i -lt 3000 ]; do echo a line that nobody will read; i=$((i+1)); done"
    )
    server.submit(*team(), job("loud", script))
    server.wait_phase("loud", "Running")
    server.kill()
    ballast = fill(server)
    (server.work / "team" / "go").touch()
    deadline = time.monotonic() + 30
    while marked(server.data):
        assert time.monotonic() < deadline, "the job does not end"
        time.sleep(0.05)
    ballast.unlink()
    server.start()
    server.wait_phase("loud", "Completed")
    client = Raw(server.kubeconfig)

    def events() -> str:
        return json.dumps(client.ask("GET", "/api/v1/namespaces/team/events")[1])

    server.wait("LogDropped", lambda: "LogDropped" in events())
    client.close()


def test_full_disk_refuses_submissions_and_loses_nothing_acknowledged(small: Up) -> None:
    server = small.start()
    server.submit(*team(), job("before", "sleep 2; exit 0"))
    server.wait_phase("before", "Running")
    ballast = fill(server)
    refused = None
    for number in range(200):
        path = server.folder / "more.yaml"
        path.write_text(str(job(f"more{number}", "true")).replace("'", '"'))
        done = server.runs("submit", "-f", str(path), ok=False)
        if done.returncode:
            refused = done.stderr
            break
    assert refused is not None
    assert "Traceback" not in refused
    assert "full" in refused or "space" in refused
    ballast.unlink()
    # Acknowledged runs exist, refused ones can be submitted again, and the end of the job was kept.
    server.wait_phase("before", "Completed")
    server.submit(job("after", "true"))
    server.wait_phase("after", "Completed")
    server.cli("leasehold", "ledger", "verify", "--data", str(server.data))
    server.cli("leasehold", "audit", "--data", str(server.data))
