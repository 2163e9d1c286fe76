"""A folder for agents under test."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def ground() -> Iterator[Path]:
    """Open to all users, as pytest's own temporary folder is not: jobs may run as others."""
    folder = Path(tempfile.mkdtemp(prefix="leasehold-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)
