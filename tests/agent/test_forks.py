"""The agent's end of the zygote: a program that is missing, and one that does not understand."""

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
    """`leasehold up` of a copy of the package that has another program, or none."""
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


def test_without_the_program_it_says_what_is_missing_and_what_helps(ground: Path) -> None:
    done = up_with(ground, None)

    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    [said] = [line for line in done.stderr.splitlines() if line.startswith("Error: ")]
    assert str(ground / "src/leasehold/adapters/agent/shim/leasehold-shim") in said
    assert "is missing" in said
    assert "make setup" in said
    assert "wheel" in said


def test_a_program_for_another_machine_is_said_to_be_none(ground: Path) -> None:
    done = up_with(ground, "\x7fELF of another machine")

    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "the agent cannot start jobs: Exec format error" in done.stderr
    assert "leasehold-shim" in done.stderr


def test_a_request_that_is_not_understood_is_rejected_and_others_go_on(
    ground: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after an upgrade of the program below an agent that runs."""
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
