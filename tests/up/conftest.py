"""Servers for the tests of this folder; each server and its jobs end with the test."""

import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.up.server import Up

ROOT = Path(__file__).resolve().parents[2]
Servers = Callable[..., Up]


@pytest.fixture
def up() -> Iterator[Servers]:
    made: list[Up] = []
    # Not pytest's own folder: with root, jobs run as other users, who must be able to enter it.
    # A shim that was just killed may write its last record during the cleanup.
    with tempfile.TemporaryDirectory(prefix="leasehold-up-", ignore_cleanup_errors=True) as root:
        Path(root).chmod(0o755)

        def make(*arguments: str, **settings: str) -> Up:
            folder = Path(root) / str(len(made))
            folder.mkdir()
            made.append(Up(folder, *(arguments or ("--gpus", "8")), **settings))
            return made[-1]

        yield make
        for server in made:
            server.end()


@pytest.fixture(scope="session")
def kubectl_path() -> Path:
    built = subprocess.run(
        [str(ROOT / "tools" / "kube" / "build"), "kubectl"],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return Path(built.stdout.strip())
