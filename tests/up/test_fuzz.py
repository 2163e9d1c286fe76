"""The fuzz test with real submissions, as a part of the suite."""

import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.up.fuzz import SUBMISSIONS, Fuzz, seed_of_commit

DEADLINE_S = 600.0  # the test takes one minute on an idle machine


@pytest.mark.long
@pytest.mark.deadline(DEADLINE_S)
def test_server_survives_thousands_of_mutated_manifests(
    record_property: Callable[[str, object], None],
) -> None:
    # Not pytest's own folder: with root, jobs run as other users, who must be able to enter it.
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
    # The fuzz must not only be refused: many runs must have been accepted.
    assert found.counts["run accepted"] > SUBMISSIONS // 20
    assert found.counts["edit accepted"] > 0
