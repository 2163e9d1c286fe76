"""The short storm of the suite; `make test-kills` runs the long one."""

import tempfile
from pathlib import Path

import pytest
from tests.up.kills import Storm


# The garbage collector closes a connection that dies with the server during its handshake.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_repeatedly_killed_control_plane_loses_nothing() -> None:
    with tempfile.TemporaryDirectory(prefix="leasehold-storm-") as root:
        folder = Path(root)
        folder.chmod(0o755)
        storm = Storm(folder, seed=3)
        try:
            found = storm.play(6)
        finally:
            storm.server.end()
    # The time between lease and job depends on the load of the machine; `make test-kills` reports
    # it. Which run used what, and how often, does not depend on the load.
    problems = [each for each in found.problems if not each.startswith("lease ")]
    assert problems == []
    assert found.runs > 5
    assert found.leases > 5
