"""Random stories: forty of each kind, which all end alike; and some that nobody has seen.

What the two do not agree on beyond these is found by `make test-model SEEDS=A..B`.
"""

import subprocess
from pathlib import Path

import pytest
from tests.model.compare import Difference
from tests.model.seeds import ask, profile_of
from tests.model.stories import PROFILES

ROOT = Path(__file__).parents[2]
SEEDS = range(200)


@pytest.mark.parametrize("profile", PROFILES)
def test_product_and_model_agree_on_fixed_seeds(profile: str) -> None:
    seeds = [seed for seed in SEEDS if profile_of(seed) == profile]
    answers = [ask((seed, profile, False)) for seed in seeds]
    invalid = [(seed, why) for (seed, _, _), why in answers if isinstance(why, str)]
    differ = [seed for (seed, _, _), found in answers if isinstance(found, Difference)]
    assert invalid == []
    assert differ == []


def test_stories_of_this_commit_are_valid_and_break_nothing() -> None:
    """A story that the product refuses, or in which it breaks an invariant, is an error here."""
    first = seed_of_commit()
    answers = [ask((seed, profile_of(seed), False)) for seed in range(first, first + 20)]
    differ = [seed for (seed, _, _), found in answers if isinstance(found, Difference)]
    print(f"seeds {first}..{first + 19}: {20 - len(differ)} of 20 agree; differ: {differ}")
    assert [why for _, why in answers if isinstance(why, str)] == []


def seed_of_commit() -> int:
    """Without a history, a number that nobody has used yet."""
    done = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return 1_000_000 + int(done.stdout[:6] or "0", 16)
