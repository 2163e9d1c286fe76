"""Compiles the shim, `leasehold-shim`, when leasehold is installed or packed into a wheel.

Hatchling calls it (pyproject.toml). The compiler is Zig's, a wheel of PyPI, so that nothing of the
machine is needed. In a wheel the program is static and the same wherever it was built: of x86-64 or
ARM, for any Linux. For a checkout it uses the C library of this machine if that is glibc, because
compiling Zig's own takes 35 CPU seconds and `make demo` would wait for it. Elsewhere than on Linux
nothing is compiled: everything but `leasehold up` works there.
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
STATIC = ("-static", "-s")
DYNAMIC = ("-s",)
GLIBC = (2, 28)  # the newest whose functions the shim may use
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
            compile_shim(ROOT / SHIM, ROOT / SHIM / PROGRAM, *linking())
            return
        program = ROOT / "build" / machine / PROGRAM
        compile_shim(ROOT / SHIM, program, f"{machine}-linux-musl", STATIC)
        build_data["force_include"][str(program)] = f"{SHIM.relative_to('src')}/{PROGRAM}"
        build_data["pure_python"] = False
        build_data["tag"] = f"py3-none-manylinux_2_17_{machine}.musllinux_1_1_{machine}"


def linking() -> tuple[str, Sequence[str]]:
    """Return the target and the link options for a program that runs on this machine only."""
    name, version = platform.libc_ver()
    if name != "glibc":
        return f"{platform.machine()}-linux-musl", STATIC
    here = tuple(int(part) for part in version.split(".")[:2])
    major, minor = min(here, GLIBC)
    return f"{platform.machine()}-linux-gnu.{major}.{minor}", DYNAMIC


def compile_shim(source: Path, program: Path, target: str, options: Sequence[str]) -> None:
    """Raises `CalledProcessError` when it cannot; the compiler has said why."""
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
        coming.chmod(0o755)  # jobs of other users start it, whatever the caller's umask is
        coming.replace(program)
    finally:
        coming.unlink(missing_ok=True)
