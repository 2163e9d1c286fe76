"""A question that fails in the middle leaves the World as it was."""

from collections.abc import Callable, Iterator
from itertools import pairwise

import pytest
from tests.questions.photograph import photograph
from tests.questions.played import SCENARIOS, Played
from tests.questions.test_plan import candidates

from leasehold.core.funding import cover
from leasehold.core.placement import pack
from leasehold.core.world.steps import Steps

# Before a start by cuts, and while victims end; others wait behind.
STORIES = [
    ("A5-a-checkpoint-keeps-the-place-in-the-queue", None),
    ("A4-a-hold-is-kept-from-runs-ahead", "1h14m52s"),
]


class PlantedError(Exception):
    """Nobody thought of this."""


def fatal(what: Callable[..., object], nth: int) -> Callable[..., object]:
    """The same, that raises when it is called for the n-th time."""
    calls = 0

    def calling(*args: object, **kwargs: object) -> object:
        nonlocal calls
        calls += 1
        if calls == nth:
            raise PlantedError
        return what(*args, **kwargs)

    return calling


def sooner_and_later() -> Iterator[int]:
    """1, 2, 3, 5, 8 …: a question takes thousands of steps."""
    before, now = 1, 1
    while True:
        before, now = now, before + now
        yield before


PLANTS = [(cover, "_step"), (pack, "_first_fit"), (Steps, "take")]


@pytest.mark.parametrize(("where", "name"), PLANTS, ids=[name for _, name in PLANTS])
def test_a_plan_that_fails_leaves_the_world_as_it_was(
    where: object, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = 0
    for story, until in STORIES:
        played = Played(SCENARIOS / f"{story}.yaml", until)
        before = photograph(played.world)
        for body in candidates(played):
            for nth in sooner_and_later():
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


def test_numbers_grow() -> None:
    found = sooner_and_later()
    assert all(one < other for one, other in pairwise(next(found) for _ in range(9)))
