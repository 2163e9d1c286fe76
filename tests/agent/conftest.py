"""A folder for agents under test."""

from pathlib import Path

import pytest


@pytest.fixture
def ground(open_tmp: Path) -> Path:
    """Open to all users: jobs may run as others."""
    return open_tmp
