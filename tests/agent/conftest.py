"""The fixtures of the agent tests."""

from pathlib import Path

import pytest


@pytest.fixture
def ground(open_tmp: Path) -> Path:
    """Return a temporary folder that all users can enter: jobs may run as another user."""
    return open_tmp
