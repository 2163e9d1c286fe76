"""The static program that a wheel has, as opposed to the one of a checkout."""

import os
import platform
from pathlib import Path

import pytest
from hatch_build import PROGRAM, ROOT, SHIM, STATIC, compile_shim
from tests.agent.zygote import Zygote, exit_of, journal_for, script


@pytest.mark.long
def test_the_program_of_a_wheel_runs_a_job_and_needs_no_library(ground: Path) -> None:
    program = ground / PROGRAM
    before = os.umask(0o077)
    try:
        compile_shim(ROOT / SHIM, program, f"{platform.machine()}-linux-musl", STATIC)
    finally:
        os.umask(before)
    assert program.stat().st_mode & 0o777 == 0o755, "jobs of other users start it"
    assert b"ld-linux" not in program.read_bytes(), "it asks for no loader"

    with Zygote(ground / "shims.err", program=program) as zygote:
        journal = journal_for(ground, script(ground, "exit 7"))
        assert zygote.run(journal).code == 7
        assert exit_of(journal)["code"] == 7
