"""What a single value may be, at and beyond each of its bounds."""

import math
from collections.abc import Callable

import pytest

from leasehold.core.facts import Gang
from leasehold.core.objects import kinds
from leasehold.core.objects.problems import VALUE_CHARS_MAX, Problem, joined, show, shown

GOOD: tuple[tuple[Callable[[object], object], object, object], ...] = (
    (kinds.flag, True, True),
    (kinds.text, "x", "x"),
    (kinds.text_or_none, "", ""),
    (kinds.gpus, 1, 1),
    (kinds.gpus, 1_000_000, 1_000_000),
    (kinds.gpus_or_none, 0, 0),
    (kinds.gpu_hours, 1, 3_600_000),
    (kinds.gpu_hours, 0.5, 1_800_000),
    (kinds.gpu_hours, 0.1, 360_000),
    (kinds.gpu_hours, 0.00001, 36),
    (kinds.gpu_hours, 33.33333, 119_999_988),
    (kinds.gpu_hours, kinds.GPU_HOURS_MAX, kinds.GPU_HOURS_MAX * 3_600_000),
    (kinds.instant, "1970-01-01T00:00:01Z", 1000),
    (kinds.instant, "1970-01-01T01:00:00.5+01:00", 500),
    (kinds.span, "1h30m", 5_400_000),
    (kinds.span_or_none, "0s", 0),
    (kinds.one_of(Gang), "Group", Gang.GROUP),
    (kinds.owner, "org:ai:mm", "org:ai:mm"),
    (kinds.owner, "solo", "solo"),
    (kinds.owner, "A._-9:b", "A._-9:b"),
    (kinds.owner, "a" * 253, "a" * 253),
    (kinds.namespace, "a", "a"),
    (kinds.namespace, "a" * 63, "a" * 63),
    (kinds.object_name, "a.b-c.d", "a.b-c.d"),
    (kinds.object_name, "a" * 253, "a" * 253),
    (kinds.word, "H100-80GB", "H100-80GB"),
    (kinds.label_value, "", ""),
    (kinds.owner_glob, "*", "*"),
    (kinds.owner_glob, "org:ai:*", "org:ai:*"),
    (kinds.owner_glob, "*:sys", "*:sys"),
    (kinds.owner_glob, "org:*:sys", "org:*:sys"),
    (kinds.owner_glob, "a" * 251 + ":*", "a" * 251 + ":*"),
)

BAD: tuple[tuple[Callable[[object], object], object], ...] = (
    (kinds.flag, 1),
    (kinds.flag, "true"),
    (kinds.text, ""),
    (kinds.text, 5),
    (kinds.text_or_none, 5),
    (kinds.gpus, 0),
    (kinds.gpus, -1),
    (kinds.gpus, 1_000_001),
    (kinds.gpus, 10**5000),
    (kinds.gpus, True),
    (kinds.gpus, 8.0),
    (kinds.gpus, "8"),
    (kinds.gpus_or_none, -1),
    (kinds.gpu_hours, 0),
    (kinds.gpu_hours, -1),
    (kinds.gpu_hours, True),
    (kinds.gpu_hours, "40"),
    (kinds.gpu_hours, math.nan),
    (kinds.gpu_hours, math.inf),
    (kinds.gpu_hours, 1e-9),
    (kinds.gpu_hours, 0.1234567),
    (kinds.gpu_hours, kinds.GPU_HOURS_MAX + 1),
    (kinds.gpu_hours, 10**5000),
    (kinds.instant, "2026-11-01T00:00:00"),
    (kinds.instant, "2026-13-01T00:00:00Z"),
    (kinds.instant, 5),
    (kinds.instant, "2" * 5000),
    (kinds.span, "0s"),
    (kinds.span, "30"),
    (kinds.span, 30),
    (kinds.span, ""),
    (kinds.span, "-1s"),
    (kinds.span, "9" * 5000 + "s"),
    (kinds.span, "3651d"),
    (kinds.span, "٣s"),
    (kinds.one_of(Gang), "run"),
    (kinds.one_of(Gang), ["Run"]),
    (kinds.owner, ""),
    (kinds.owner, ":a"),
    (kinds.owner, "a:"),
    (kinds.owner, "a::b"),
    (kinds.owner, "a b"),
    (kinds.owner, "a\n"),
    (kinds.owner, "équipe"),
    (kinds.owner, "org:*"),
    (kinds.owner, "a" * 254),
    (kinds.namespace, "A"),
    (kinds.namespace, "-a"),
    (kinds.namespace, "a.b"),
    (kinds.namespace, "a" * 64),
    (kinds.namespace, "a\n"),
    (kinds.object_name, "a..b"),
    (kinds.object_name, "a" * 254),
    (kinds.word, "-x"),
    (kinds.word, "x" * 64),
    (kinds.word, ""),
    (kinds.label_value, "x y"),
    (kinds.owner_glob, ""),
    (kinds.owner_glob, "a::*"),
    (kinds.owner_glob, ":*"),
    (kinds.owner_glob, "*:"),
    (kinds.owner_glob, "org:?"),
    (kinds.owner_glob, "örg:*"),
    (kinds.owner_glob, "a" * 252 + ":*"),
    (kinds.owner_glob, "*" * 2000),
)


@pytest.mark.parametrize(("kind", "value", "expected"), GOOD)
def test_a_legal_value_is_read(
    kind: Callable[[object], object], value: object, expected: object
) -> None:
    assert kind(value) == expected


@pytest.mark.parametrize(("kind", "value"), BAD, ids=lambda value: shown(value)[:20])
def test_an_illegal_value_is_refused_with_a_remedy(
    kind: Callable[[object], object], value: object
) -> None:
    with pytest.raises(kinds.Wrong) as caught:
        kind(value)

    assert caught.value.remedy


@pytest.mark.parametrize(
    ("key", "legal"),
    [
        ("app", True),
        ("example.com/app", True),
        ("a/b/c", False),
        ("/app", False),
        ("app/", False),
        ("x" * 64, False),
        (f"{'x' * 254}/a", False),
    ],
)
def test_label_keys(key: str, legal: bool) -> None:
    assert kinds.is_label_key(key) is legal


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (False, "false"),
        (12, "12"),
        (1.5, "1.5"),
        ("a", "'a'"),
        ("a\nb", r"'a\nb'"),
        ({"a": 1}, "a mapping of 1"),
        ([1, 2], "a list of 2"),
        ({1}, "a set"),
        (1 << 20_000, "a number of 20001 bits"),
    ],
    ids=shown,
)
def test_values_are_shown_on_one_line(value: object, text: str) -> None:
    assert shown(value) == text


def test_a_long_value_is_cut() -> None:
    assert len(shown("x" * 10_000)) == VALUE_CHARS_MAX


@pytest.mark.parametrize(
    ("key", "path"),
    [
        ("x", "spec.x"),
        (3, "spec[3]"),
        (1 << 90, "spec[…]"),
        (None, "spec[null]"),
        (True, "spec[true]"),
        ("fabric.domain", "spec[fabric.domain]"),
        ("a\nb", r"spec[a\nb]"),
        ("k" * 81, f"spec.{'k' * 80}…"),
    ],
)
def test_paths(key: object, path: str) -> None:
    assert joined("spec", key) == path


def test_a_problem_reads_as_one_line() -> None:
    problem = Problem(path="spec.x", value="12", remedy="write a divisor of 32")

    assert show(problem) == "spec.x: 12: write a divisor of 32"
