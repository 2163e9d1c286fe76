"""The static shim program of a wheel; a checkout has a dynamic one."""

import os
import platform
from pathlib import Path

import pytest
from hatch_build import PROGRAM, ROOT, SHIM, STATIC, compile_shim
from tests.agent.zygote import Zygote, exit_of, journal_for, script


@pytest.mark.long
def test_static_shim_of_a_wheel_runs_job_without_dynamic_loader(ground: Path) -> None:
    program = ground / PROGRAM
    before = os.umask(0o077)
    try:
        compile_shim(ROOT / SHIM, program, f"{platform.machine()}-linux-musl", STATIC)
    finally:
        os.umask(before)
    assert program.stat().st_mode & 0o777 == 0o755, "other users must be able to start it"
    assert b"ld-linux" not in program.read_bytes(), "it must not need a loader"

    with Zygote(ground / "shims.err", program=program) as zygote:
        journal = journal_for(ground, script(ground, "exit 7"))
        assert zygote.run(journal).code == 7
        assert exit_of(journal)["code"] == 7
