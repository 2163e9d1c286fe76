"""What a single value may be, at and beyond each of its bounds."""

import math
from collections.abc import Callable

import pytest

from leasehold.core.facts import Gang
from leasehold.core.objects import readers
from leasehold.core.objects.problems import VALUE_CHARS_MAX, Problem, joined, show, shown

GOOD: tuple[tuple[Callable[[object], object], object, object], ...] = (
    (readers.flag, True, True),
    (readers.text, "x", "x"),
    (readers.text_or_none, "", ""),
    (readers.gpus, 1, 1),
    (readers.gpus, 1_000_000, 1_000_000),
    (readers.gpus_or_none, 0, 0),
    (readers.gpu_hours, 1, 3_600_000),
    (readers.gpu_hours, 0.5, 1_800_000),
    (readers.gpu_hours, 0.1, 360_000),
    (readers.gpu_hours, 0.00001, 36),
    (readers.gpu_hours, 33.33333, 119_999_988),
    (readers.gpu_hours, readers.GPU_HOURS_MAX, readers.GPU_HOURS_MAX * 3_600_000),
    (readers.instant, "1970-01-01T00:00:01Z", 1000),
    (readers.instant, "1970-01-01T01:00:00.5+01:00", 500),
    (readers.span, "1h30m", 5_400_000),
    (readers.span_or_none, "0s", 0),
    (readers.one_of(Gang), "Group", Gang.GROUP),
    (readers.owner, "org:ai:mm", "org:ai:mm"),
    (readers.owner, "solo", "solo"),
    (readers.owner, "A._-9:b", "A._-9:b"),
    (readers.owner, "a" * 253, "a" * 253),
    (readers.namespace, "a", "a"),
    (readers.namespace, "a" * 63, "a" * 63),
    (readers.object_name, "a.b-c.d", "a.b-c.d"),
    (readers.object_name, "a" * 253, "a" * 253),
    (readers.word, "H100-80GB", "H100-80GB"),
    (readers.label_value, "", ""),
    (readers.owner_glob, "*", "*"),
    (readers.owner_glob, "org:ai:*", "org:ai:*"),
    (readers.owner_glob, "*:sys", "*:sys"),
    (readers.owner_glob, "org:*:sys", "org:*:sys"),
    (readers.owner_glob, "a" * 251 + ":*", "a" * 251 + ":*"),
)

BAD: tuple[tuple[Callable[[object], object], object], ...] = (
    (readers.flag, 1),
    (readers.flag, "true"),
    (readers.text, ""),
    (readers.text, 5),
    (readers.text_or_none, 5),
    (readers.gpus, 0),
    (readers.gpus, -1),
    (readers.gpus, 1_000_001),
    (readers.gpus, 10**5000),
    (readers.gpus, True),
    (readers.gpus, 8.0),
    (readers.gpus, "8"),
    (readers.gpus_or_none, -1),
    (readers.gpu_hours, 0),
    (readers.gpu_hours, -1),
    (readers.gpu_hours, True),
    (readers.gpu_hours, "40"),
    (readers.gpu_hours, math.nan),
    (readers.gpu_hours, math.inf),
    (readers.gpu_hours, 1e-9),
    (readers.gpu_hours, 0.1234567),
    (readers.gpu_hours, readers.GPU_HOURS_MAX + 1),
    (readers.gpu_hours, 10**5000),
    (readers.instant, "2026-11-01T00:00:00"),
    (readers.instant, "2026-13-01T00:00:00Z"),
    (readers.instant, 5),
    (readers.instant, "2" * 5000),
    (readers.span, "0s"),
    (readers.span, "30"),
    (readers.span, 30),
    (readers.span, ""),
    (readers.span, "-1s"),
    (readers.span, "9" * 5000 + "s"),
    (readers.span, "3651d"),
    (readers.span, "٣s"),
    (readers.one_of(Gang), "run"),
    (readers.one_of(Gang), ["Run"]),
    (readers.owner, ""),
    (readers.owner, ":a"),
    (readers.owner, "a:"),
    (readers.owner, "a::b"),
    (readers.owner, "a b"),
    (readers.owner, "a\n"),
    (readers.owner, "équipe"),
    (readers.owner, "org:*"),
    (readers.owner, "a" * 254),
    (readers.namespace, "A"),
    (readers.namespace, "-a"),
    (readers.namespace, "a.b"),
    (readers.namespace, "a" * 64),
    (readers.namespace, "a\n"),
    (readers.object_name, "a..b"),
    (readers.object_name, "a" * 254),
    (readers.word, "-x"),
    (readers.word, "x" * 64),
    (readers.word, ""),
    (readers.label_value, "x y"),
    (readers.owner_glob, ""),
    (readers.owner_glob, "a::*"),
    (readers.owner_glob, ":*"),
    (readers.owner_glob, "*:"),
    (readers.owner_glob, "org:?"),
    (readers.owner_glob, "örg:*"),
    (readers.owner_glob, "a" * 252 + ":*"),
    (readers.owner_glob, "*" * 2000),
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
    with pytest.raises(readers.WrongValue) as caught:
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
def test_only_legal_label_keys_are_accepted(key: str, legal: bool) -> None:
    assert readers.is_label_key(key) is legal


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


def test_long_value_is_truncated() -> None:
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
def test_path_quotes_keys_that_are_not_plain(key: object, path: str) -> None:
    assert joined("spec", key) == path


def test_problem_is_shown_on_one_line() -> None:
    problem = Problem(path="spec.x", value="12", remedy="use a divisor of 32")

    assert show(problem) == "spec.x: 12: use a divisor of 32"
