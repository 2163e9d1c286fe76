"""Readers of single values in a scenario: names, bounds, durations and lists, as typed records.

Called by the two parsers through `core.objects.fields.Fields`, which adds path and line to a
mistake. Each function raises `WrongValue` with a remedy. Numbers become exact fractions, so no
floats are compared.
"""

import re
from collections.abc import Callable, Collection
from enum import StrEnum
from fractions import Fraction

from leasehold.core.objects import readers
from leasehold.core.objects.readers import WrongValue
from leasehold.sim.scenario.story import (
    Groups,
    Names,
    Number,
    Odds,
    ShrunkFrom,
    Truth,
    Unit,
    Walk,
    Word,
    Words,
)

INDEX_MAX = 1_000_000
_EXIT = re.compile(r"exit ([0-9]{1,3})")


def run_key(value: object) -> str:
    """Read the name of a run: `namespace/name`."""
    parts = value.split("/") if isinstance(value, str) else []
    if len(parts) != 2:
        raise WrongValue("use namespace/name")
    readers.namespace(parts[0])
    readers.object_name(parts[1])
    return "/".join(parts)


def envelope_key(value: object) -> str:
    """Read the name of an envelope: `namespace/budget/envelope`."""
    parts = value.split("/") if isinstance(value, str) else []
    if len(parts) != 3:
        raise WrongValue("use namespace/budget/envelope")
    readers.namespace(parts[0])
    readers.object_name(parts[1])
    readers.word(parts[2])
    return "/".join(parts)


def run_or_envelope(value: object) -> str:
    if isinstance(value, str) and value.count("/") == 2:
        return envelope_key(value)
    if isinstance(value, str) and value.count("/") == 1:
        return run_key(value)
    raise WrongValue("use namespace/run or namespace/budget/envelope")


def known(
    kind: Callable[[object], str], names: Collection[str], what: str
) -> Callable[[object], str]:
    """Return a reader of names that the scenario file must define. `kind` reads the name, `names`
    are the defined ones, `what` is the word for them in messages."""

    def check(value: object) -> str:
        name = kind(value)
        if name not in names:
            shown = ", ".join(sorted(names)[:8]) or "none"
            raise WrongValue(f"there is no such {what} in this file; it has: {shown}")
        return name

    return check


def index(value: object) -> int:
    return readers.whole(0, INDEX_MAX)(value)


def does(value: object) -> tuple[int | None, bool]:
    """Read what a pod does: `exit N`, `stick` or `unstick`. Return the exit code (None without one)
    and whether the pod ignores signals from now on."""
    if value == "stick":
        return None, True
    if value == "unstick":
        return None, False
    match = _EXIT.fullmatch(value) if isinstance(value, str) else None
    if match is None or int(match.group(1)) > 255:
        raise WrongValue("use exit with a code from 0 to 255 (such as: exit 3), stick or unstick")
    return int(match.group(1)), False


def count(value: object) -> Number:
    return _bounded(value, Unit.COUNT, _whole, "a whole number")


def hours(value: object) -> Number:
    return _bounded(value, Unit.HOURS, _fraction, "a number of GPU-hours")


def span(value: object) -> Number:
    return _bounded(value, Unit.SPAN, _span, "a duration since the start, such as 0s or 1h15m")


def _bounded(
    value: object, unit: Unit, one: Callable[[object], Fraction | None], what: str
) -> Number:
    remedy = f"use {what}, or bounds such as {{min: …, max: …}}"
    if not isinstance(value, dict):
        exact = one(value)
        if exact is None:
            raise WrongValue(remedy)
        return Number(low=exact, high=exact, unit=unit)
    if not value or not set(value) <= {"min", "max"}:
        raise WrongValue(remedy)
    bounds = {name: one(member) for name, member in value.items()}
    if None in bounds.values():
        raise WrongValue(remedy)
    low, high = bounds.get("min"), bounds.get("max")
    if low is not None and high is not None and low > high:
        raise WrongValue("min is over max; use the smaller one as min")
    return Number(low=low, high=high, unit=unit)


def _whole(value: object) -> Fraction | None:
    return Fraction(value) if isinstance(value, int) and not isinstance(value, bool) else None


def _fraction(value: object) -> Fraction | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return Fraction(str(value))


def _span(value: object) -> Fraction | None:
    try:
        return Fraction(readers.span_or_none(value))
    except WrongValue:
        return None


def word(value: object) -> Word:
    if not isinstance(value, str) or not value:
        raise WrongValue("use a word")
    return Word(text=value)


def one_of(choices: type[StrEnum]) -> Callable[[object], Word]:
    check = readers.one_of(choices)
    return lambda value: Word(text=str(check(value)))


def words(value: object) -> Words:
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not texts or not all(isinstance(t, str) and t for t in texts):
        raise WrongValue("use a list of strings")
    return Words(texts=tuple(texts))


def truth(value: object) -> Truth:
    return Truth(value=readers.flag(value))


def only_true(value: object) -> Truth:
    if value is not True:
        raise WrongValue("use true, or leave it out")
    return Truth(value=True)


def names(value: object) -> Names:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise WrongValue("use a list of names")
    return Names(names=tuple(sorted(value)))


def groups_in_order(value: object) -> Groups:
    if not isinstance(value, list) or not all(_whole(each) is not None for each in value):
        raise WrongValue("use a list of group numbers")
    return Groups(numbers=tuple(value))


def groups(value: object) -> Groups:
    return Groups(numbers=tuple(sorted(groups_in_order(value).numbers)))


def walk(value: object) -> Walk:
    remedy = "use a list of pairs [namespace/budget/envelope, GPUs taken or the reason for none]"
    if not isinstance(value, list):
        raise WrongValue(remedy)
    steps = []
    for pair in value:
        if not isinstance(pair, list) or len(pair) != 2:
            raise WrongValue(remedy)
        name, verdict = pair
        if isinstance(verdict, bool) or not isinstance(verdict, int | str):
            raise WrongValue(remedy)
        steps.append((envelope_key(name), verdict))
    return Walk(steps=tuple(steps))


def odds(value: object) -> Odds:
    if not isinstance(value, dict):
        raise WrongValue("use percents by run, such as {x/x: 50}")
    return Odds(by_run=tuple((run_key(run), count(percent)) for run, percent in value.items()))


def shrunk_from(value: object) -> ShrunkFrom:
    if not isinstance(value, dict):
        raise WrongValue("use lists of group numbers by run, such as {e/e: [7, 6]}")
    return ShrunkFrom(
        by_run=tuple((run_key(run), groups_in_order(each)) for run, each in value.items())
    )
