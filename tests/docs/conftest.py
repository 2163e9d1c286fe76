"""Fixtures: a reader of the documents' examples, with a real kubectl."""

import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.docs.reader import Reader

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def kubectl_path() -> Path:
    built = subprocess.run(
        [str(ROOT / "tools" / "kube" / "build"), "kubectl"],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return Path(built.stdout.strip())


@pytest.fixture
def reader(kubectl_path: Path) -> Iterator[Reader]:
    # A folder outside pytest's own: as root, jobs run as other users, who need access to it.
    with tempfile.TemporaryDirectory(prefix="leasehold-docs-", ignore_cleanup_errors=True) as root:
        Path(root).chmod(0o755)
        found = Reader(Path(root), kubectl_path)
        try:
            yield found
        finally:
            found.close()
