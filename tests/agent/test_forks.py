"""The agent's side of the zygote: a missing program, and one that rejects a request."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.agent.harness import Stage, phase, stage
from tests.agent.zygote import SOURCE

from leasehold.adapters.agent import forks
from leasehold.adapters.agent.journals import PodJournal
from leasehold.adapters.agent.shim.records import Record
from leasehold.core.names import Wire
from leasehold.core.objects.pod import pod_from_wire
from leasehold.core.objects.wire import part, text_at

UP = "import sys; from leasehold.cli.main import main; sys.argv[0] = 'leasehold'; main()"


def up_with(ground: Path, program: str | None) -> subprocess.CompletedProcess[str]:
    """Run `leasehold up` from a copy of the package with another shim program, or without one."""
    package = SOURCE.parents[3] / "leasehold"
    ignored = shutil.ignore_patterns("leasehold-shim", "__pycache__")
    copy = Path(shutil.copytree(package, ground / "src" / "leasehold", ignore=ignored))
    if program is not None:
        place = copy / "adapters" / "agent" / "shim" / "leasehold-shim"
        place.write_text(program)
        place.chmod(0o755)
    command = [sys.executable, "-c", UP, "up", "--gpus", "1", "--port", "0"]
    return subprocess.run(
        [*command, "--data", str(ground / "data"), "--work", str(ground / "work")],
        env={**os.environ, "PYTHONPATH": str(ground / "src")},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


def test_missing_shim_program_is_reported_with_path_and_remedy(ground: Path) -> None:
    done = up_with(ground, None)

    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    [said] = [line for line in done.stderr.splitlines() if line.startswith("Error: ")]
    assert str(ground / "src/leasehold/adapters/agent/shim/leasehold-shim") in said
    assert "is missing" in said
    assert "make setup" in said
    assert "wheel" in said


def test_shim_program_for_another_machine_is_reported(ground: Path) -> None:
    done = up_with(ground, "\x7fELF of another machine")

    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "the agent cannot start jobs: Exec format error" in done.stderr
    assert "leasehold-shim" in done.stderr


def test_request_that_zygote_rejects_fails_its_pod_and_others_run(
    ground: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This happens after the program is upgraded while an agent runs."""
    frame_of = forks.frame_of

    def odd_frame_of(journal: PodJournal) -> bytes:
        frame = frame_of(journal)
        return (
            frame.replace(b"leasehold-shim 2", b"leasehold-shim 0")
            if "odd" in _words(journal.request)
            else frame
        )

    monkeypatch.setattr(forks, "frame_of", odd_frame_of)

    async def play(machine: Stage) -> tuple[Wire, Wire]:
        await machine.submit("first", "odd")
        await machine.submit("second", "true")
        return await machine.ended("first"), await machine.ended("second")

    first, second = stage(ground, play)

    assert phase(second) == "Succeeded"
    assert pod_from_wire(first).reason == "Rejected"
    assert not pod_from_wire(first).is_bound
    said = text_at(part(first, "status"), "message")
    assert "the shim died before it could start the pod" in said
    assert "is malformed" in (ground / "data" / "shims.err").read_text()


def _words(request: Record) -> list[str]:
    argv = request["argv"]
    assert isinstance(argv, list)
    return argv
