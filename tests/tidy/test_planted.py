"""Every planted bug can be planted: its text is in the source exactly once, and the tests that
must notice it exist.

Otherwise only a run of all planted bugs would find one that no longer fits its file. That takes
long and is not done for every change.
"""

from pathlib import Path

import pytest
from tests.mutants.mutant import Mutant
from tests.mutants.run import MUTANTS, misplaced
from tests.mutants.run_simulated import MUTANTS as STORMS

ROOT = Path(__file__).resolve().parents[2]
PLANTED = {mutant.name: mutant for mutant in (*MUTANTS, *STORMS)}


@pytest.mark.parametrize("mutant", PLANTED.values(), ids=lambda mutant: mutant.name)
def test_planted_bug_fits_its_file_and_its_tests_exist(mutant: Mutant) -> None:
    assert misplaced(mutant, ROOT / "src") == []
    assert mutant.old != mutant.new
    files = [each for each in mutant.tests if each.endswith(".py")]
    assert [each for each in files if not (ROOT / each).exists()] == []


def test_names_of_planted_bugs_are_unique() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
    assert len({mutant.name for mutant in STORMS}) == len(STORMS)
