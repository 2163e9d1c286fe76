"""The cases by name, and where the two servers may differ, with the reason in one line."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from tests.apiserver.talk import Case

CASES: dict[str, "Row"] = {}


@dataclass(frozen=True)
class Row:
    """`differs`: pattern over `step path` -> which of REASONS. Each must match a difference, and
    every difference one of them."""

    name: str
    case: Case
    differs: Mapping[str, str] = field(default_factory=dict)


def case(differs: Mapping[str, str] | None = None) -> Callable[[Case], Case]:
    def keep(function: Case) -> Case:
        name = function.__name__
        assert name not in CASES, f"{name} is there already"
        CASES[name] = Row(name, function, differs or {})
        return function

    return keep


def reason_for(row: Row, path: str) -> str | None:
    """The pattern that explains it. Another HTTP code is never part of a larger difference: it
    must be named."""
    for pattern in row.differs:
        if path.endswith(" http") and not pattern.endswith(" http"):
            continue
        if fnmatchcase(path, pattern.replace("[", "[[]")):
            return pattern
    return None
