"""Compiles the shim, `leasehold-shim`, when leasehold is installed or packed into a wheel.

Hatchling calls it (pyproject.toml). The compiler is Zig's, a wheel of PyPI, so that nothing of the
machine is needed and the program is the same wherever it was built: static, of x86-64 or ARM,
for any Linux. Elsewhere nothing is compiled: everything but `leasehold up` works there.
"""

import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).resolve().parent
SHIM = Path("src/leasehold/adapters/agent/shim")
PROGRAM = "leasehold-shim"
MACHINES = ("x86_64", "aarch64")
OPTIONS = ("-std=c11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-O2")
LINKING = ("-static", "-s")
MACHINE = "LEASEHOLD_MACHINE"  # in the environment: for which machine, if not for this one


class ShimBuild(BuildHookInterface[Any]):
    """`initialize` comes before files are collected, for a wheel and for an editable install."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        machine = os.environ.get(MACHINE, platform.machine())
        if sys.platform != "linux" or machine not in MACHINES:
            self.app.display_warning(f"{PROGRAM} is not compiled for {sys.platform} on {machine}")
            return
        if version == "editable":  # it is run where it lies
            compile_shim(ROOT / SHIM, ROOT / SHIM / PROGRAM)
            return
        program = ROOT / "build" / machine / PROGRAM
        compile_shim(ROOT / SHIM, program, machine=machine)
        build_data["force_include"][str(program)] = f"{SHIM.relative_to('src')}/{PROGRAM}"
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-manylinux_2_17_{machine}.musllinux_1_1_{machine}"


def compile_shim(
    source: Path, program: Path, *, machine: str = "", options: Sequence[str] = LINKING
) -> None:
    """Raises `CalledProcessError` when it cannot; the compiler has said why."""
    target = f"{machine or platform.machine()}-linux-musl"
    files = sorted(str(path) for path in source.glob("*.c"))
    # In its place at once, so that whoever starts it meanwhile finds the old one or the new one.
    coming = program.with_name(f".{program.name}.{os.getpid()}")
    # Beside the sources: a home may be missing, and a first time costs a minute of compiling libc.
    cache = str(ROOT / "build" / "zig")
    program.parent.mkdir(parents=True, exist_ok=True)
    env = {"ZIG_GLOBAL_CACHE_DIR": cache, "ZIG_LOCAL_CACHE_DIR": cache} | os.environ
    compiler = (sys.executable, "-m", "ziglang", "cc", "-target", target)
    command = (*compiler, *OPTIONS, *options, *files, "-o", str(coming))
    try:
        subprocess.run(command, check=True, env=env)
        coming.replace(program)
    finally:
        coming.unlink(missing_ok=True)
