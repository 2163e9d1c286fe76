"""A shim by itself: a clock that is set back, a folder that was given up, an old stop."""

import json
import os
import subprocess
import sys
from pathlib import Path

from leasehold.adapters.agent.folders import PodFolders, Stage
from leasehold.adapters.agent.shim.records import Record

ROOT = Path(__file__).resolve().parents[2]

# The wall clock is an hour behind from its second reading on.
SET_BACK = """
import ctypes, sys, time
from leasehold.adapters.agent.shim import life, records
real, hour = time.time_ns, 3_600_000_000_000
readings = iter([0])
time.time_ns = lambda: real() - next(readings, hour)
life.live(sys.argv[1], ctypes.CDLL(None).prctl)
"""


def request(ground: Path, script: str) -> Record:
    return {
        "uid": "pod-1", "argv": ["/bin/sh", "-c", script], "env": {"PATH": os.environ["PATH"]},
        "cwd": str(ground), "user": None, "notify": str(ground / "nobody"),
        "log_bytes_max": 1 << 20, "log_files_max": 2, "heartbeat_ms": 60_000, "grace_ms": 1000,
        "cgroups": [], "node": "n1",
    }  # fmt: skip


def live(folder: Path) -> None:
    subprocess.run(
        [sys.executable, "-c", SET_BACK, str(folder)],
        env={"PYTHONPATH": str(ROOT / "src")},
        check=True,
        timeout=30,
        start_new_session=False,
    )


def test_a_clock_that_is_set_back_makes_no_job_end_before_it_began(ground: Path) -> None:
    folders = PodFolders(ground / "pods")
    folder = folders.create("pod-1", request(ground, "sleep 0.05; exit 4"))

    live(folder.path)

    assert folder.stage() is Stage.OVER
    ended = folder.exit()
    assert ended.code == 4
    assert 0 <= ended.finished_at - folder.started_at < 60_000


def test_a_folder_that_an_agent_gave_up_is_never_started(ground: Path) -> None:
    folders = PodFolders(ground / "pods")
    folder = folders.create("pod-1", request(ground, "touch ran"))

    assert folder.give_up()
    live(folder.path)

    assert folder.stage() is Stage.VOID
    assert not (ground / "ran").exists()


def test_a_folder_that_a_shim_has_started_cannot_be_given_up(ground: Path) -> None:
    folders = PodFolders(ground / "pods")
    folder = folders.create("pod-1", request(ground, "echo x >> ran"))

    live(folder.path)
    live(folder.path)  # as an old zygote might

    assert not folder.give_up()
    assert (ground / "ran").read_text() == "x\n"
    assert json.loads((folder.path / "exit.json").read_text())["code"] == 0
    assert sorted(path.name for path in folder.path.iterdir()) == [
        "exit.json", "request.json", "started.json",
    ]  # fmt: skip
