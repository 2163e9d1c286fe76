"""The product and the model agree on the scenario files; with a broken rule they do not.

Repeat a seed that differs with `python -m tests.model --seeds N --shrink`.
"""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, ModuleType

import pytest
from tests.model import calendar, lottery, money, queue, resolve
from tests.model.compare import compare
from tests.model.judge import judge
from tests.model.product import play_product
from tests.model.stories import PROFILES, story_of, text_of
from tests.model.story import NotCovered, read_text

SCENARIOS = Path(__file__).parents[1] / "scenarios"
FILES = sorted(SCENARIOS.glob("*.yaml"))
DEADLINE_S = 60  # CPU seconds, so that a busy machine changes nothing

# Files that the model does not cover, besides those that its reader refuses.
LEFT_OUT = {
    "api-a-gang-too-large-for-a-batch": "how large a ledger batch may be",
}


@contextmanager
def within(seconds: int) -> Iterator[None]:
    """Fail a model that does not come to rest within so many CPU seconds."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"not done after {seconds} CPU seconds")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def is_covered(file: Path) -> bool:
    try:
        read_text(file.read_text(encoding="utf-8"))
    except NotCovered:
        return False
    return file.stem not in LEFT_OUT


COVERED = [file for file in FILES if is_covered(file)]


@pytest.mark.parametrize("file", COVERED, ids=lambda file: file.stem)
def test_product_and_model_agree_on_scenario(file: Path) -> None:
    with within(DEADLINE_S):
        found = compare(file.read_text(encoding="utf-8"))
    assert found is None, str(found)


@pytest.mark.parametrize("file", COVERED, ids=lambda file: file.stem)
def test_expectations_of_scenario_hold_for_model(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    with within(DEADLINE_S):
        _, seeds = play_product(text)
        assert judge(read_text(text), seeds) == []


def test_model_covers_most_scenarios() -> None:
    left = {file.stem.split("-")[0] for file in FILES if file not in COVERED}
    assert left == {"B1", "Q11", "S1", "api", "maintenance"}
    assert len(COVERED) > 150


def test_seed_always_gives_the_same_story() -> None:
    for profile in PROFILES:
        assert text_of(story_of(7, profile)) == text_of(story_of(7, profile))


# Each of these breaks one rule of the model, to show that the comparison can fail.

Break = tuple[ModuleType, str, Callable[..., object], str]


def _last_of_all(seed: str, k: int, below: int) -> int:
    return below - 1


def _no_holds(*_: object) -> list[object]:
    return []


def _no_pruning(scope: object) -> None:
    pass


def _no_family(*_: object) -> list[str]:
    return []


def _at_once(*_: object) -> int:
    return 0


BROKEN: list[Break] = [
    (lottery, "number", _last_of_all, "R4-"),
    (calendar, "holds", _no_holds, "A4-"),
    (queue, "hold_ends", _at_once, "A4-"),
    (resolve, "give_back", _no_pruning, "R6-"),
    (money, "siblings", _no_family, "C2-"),
]


@pytest.mark.parametrize(
    ("module", "name", "broken", "file"), BROKEN, ids=[each[1] for each in BROKEN]
)
def test_comparison_notices_a_broken_rule_in_the_model(
    module: ModuleType,
    name: str,
    broken: Callable[..., object],
    file: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    stories = [each.read_text(encoding="utf-8") for each in COVERED if each.name.startswith(file)]
    monkeypatch.setattr(module, name, broken)
    with within(DEADLINE_S):
        assert any(compare(text) is not None for text in stories)
