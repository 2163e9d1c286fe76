"""Every planted bug can be planted: its text stands in the source exactly once, and those who are
to notice it are there.

A bug that no longer fits its file is found by a run of all of them, which takes a while and is not
part of every change.
"""

from pathlib import Path

import pytest
from tests.mutants.mutant import Mutant
from tests.mutants.run import MUTANTS, misplaced
from tests.mutants.run_simulated import MUTANTS as STORMS

ROOT = Path(__file__).resolve().parents[2]
PLANTED = {mutant.name: mutant for mutant in (*MUTANTS, *STORMS)}


@pytest.mark.parametrize("mutant", PLANTED.values(), ids=lambda mutant: mutant.name)
def test_it_has_its_place(mutant: Mutant) -> None:
    assert misplaced(mutant, ROOT / "src") == []
    assert mutant.old != mutant.new
    files = [each for each in mutant.tests if each.endswith(".py")]
    assert [each for each in files if not (ROOT / each).exists()] == []


def test_no_two_have_one_name() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
    assert len({mutant.name for mutant in STORMS}) == len(STORMS)
