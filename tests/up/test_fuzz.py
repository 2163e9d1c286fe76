"""Thousands of mutated manifests are really submitted, and the server goes on, and starts again."""

import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.up.fuzz import SUBMISSIONS, Fuzz, seed_of_commit

MINE = 600.0  # seconds; on an idle machine it takes one minute


@pytest.mark.long
@pytest.mark.deadline(MINE)
def test_nobody_stops_the_server(record_property: Callable[[str, object], None]) -> None:
    # Not pytest's own folder: as root jobs run as other users, who must be able to come here.
    with tempfile.TemporaryDirectory(prefix="leasehold-fuzz-", ignore_cleanup_errors=True) as root:
        Path(root).chmod(0o755)
        fuzz = Fuzz(Path(root), seed=seed_of_commit())
        try:
            found = fuzz.play(SUBMISSIONS)
        finally:
            fuzz.server.end()
    record_property("counts", str(found))
    assert found.problems == [], str(found)
    assert found.submissions >= SUBMISSIONS
    # It is no fuzz of doors that are closed: much of it was taken in, and ran.
    assert found.counts["run accepted"] > SUBMISSIONS // 20
    assert found.counts["edit accepted"] > 0
