"""A disk that fills up: refused in words, nothing that was acknowledged is lost, and it goes on
when there is room again. Needs root: the disk is a small tmpfs of the test's own."""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.up.conftest import Servers
from tests.up.server import Up, job, team

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


def test_a_full_disk_refuses_and_loses_nothing(small: Up) -> None:
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
    # What was acknowledged is there, what was not can be tried again, and the job's end was kept.
    server.wait_phase("before", "Completed")
    server.submit(job("after", "true"))
    server.wait_phase("after", "Completed")
    server.cli("leasehold", "ledger", "verify", "--data", str(server.data))
    server.cli("leasehold", "audit", "--data", str(server.data))
