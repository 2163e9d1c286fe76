"""A question that fails in the middle leaves the World unchanged."""

from collections.abc import Callable, Iterator
from itertools import pairwise

import pytest
from tests.questions.photograph import photograph
from tests.questions.played import SCENARIOS, Played
from tests.questions.test_plan import candidates

from leasehold.core.funding import cover
from leasehold.core.placement import pack
from leasehold.core.world.steps import Steps

# Before a start by preemption, and while victims end; other runs wait behind.
STORIES = [
    ("A5-a-checkpoint-keeps-the-place-in-the-queue", None),
    ("A4-a-hold-is-kept-from-runs-ahead", "1h14m52s"),
]


class PlantedError(Exception):
    """A failure that no product code expects."""


def fatal(what: Callable[..., object], nth: int) -> Callable[..., object]:
    """Return `what` as a function that raises at its n-th call."""
    calls = 0

    def calling(*args: object, **kwargs: object) -> object:
        nonlocal calls
        calls += 1
        if calls == nth:
            raise PlantedError
        return what(*args, **kwargs)

    return calling


def increasing_steps() -> Iterator[int]:
    """Yield 1, 2, 3, 5, 8 …: a question takes thousands of steps."""
    before, now = 1, 1
    while True:
        before, now = now, before + now
        yield before


PLANTS = [(cover, "_step"), (pack, "_first_fit"), (Steps, "take")]


@pytest.mark.parametrize(("where", "name"), PLANTS, ids=[name for _, name in PLANTS])
def test_plan_that_fails_leaves_the_world_unchanged(
    where: object, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = 0
    for story, until in STORIES:
        played = Played(SCENARIOS / f"{story}.yaml", until)
        before = photograph(played.world)
        for body in candidates(played):
            for nth in increasing_steps():
                with monkeypatch.context() as patched:
                    patched.setattr(where, name, fatal(getattr(where, name), nth))
                    try:
                        played.ask("plan", body)
                        break
                    except PlantedError:
                        failed += 1
                assert photograph(played.world) == before, (story, nth)
                assert not played.world.what_if.active
    assert failed > 3


def test_steps_at_which_the_test_lets_plans_fail_increase() -> None:
    found = increasing_steps()
    assert all(one < other for one, other in pairwise(next(found) for _ in range(9)))
