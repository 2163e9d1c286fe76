"""The cases by name, and the differences between the two servers that each case declares."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from tests.apiserver.talk import Case

CASES: dict[str, "Row"] = {}


@dataclass(frozen=True)
class Row:
    """A case and its declared differences.

    `differs` maps a pattern over `step path` to a key of REASONS. Each pattern must match a
    difference, and each difference a pattern.
    """

    name: str
    case: Case
    differs: Mapping[str, str] = field(default_factory=dict)


def case(differs: Mapping[str, str] | None = None) -> Callable[[Case], Case]:
    def keep(function: Case) -> Case:
        name = function.__name__
        assert name not in CASES, f"{name} is defined twice"
        CASES[name] = Row(name, function, differs or {})
        return function

    return keep


def reason_for(row: Row, path: str) -> str | None:
    """Return the pattern that explains the difference at `path`.

    A different HTTP code needs a pattern of its own; no wider pattern covers it.
    """
    for pattern in row.differs:
        if path.endswith(" http") and not pattern.endswith(" http"):
            continue
        if fnmatchcase(path, pattern.replace("[", "[[]")):
            return pattern
    return None
