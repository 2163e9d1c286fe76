"""A mapping under check: hands out typed values and notes every mistake, not only the first.

The manifest and configuration readers walk raw JSON-like data with it. It raises nothing for any
data; a value that is wrong reads as None (or its default) and `is_wrong` tells, so that a rule
which depends on it is not applied to nonsense.
"""

from collections.abc import Callable, Iterator
from difflib import get_close_matches
from typing import TypeVar

from leasehold.core.objects.problems import MISSING, Problem, joined, shown
from leasehold.core.objects.readers import WrongValue

T = TypeVar("T")
D = TypeVar("D")
Reader = Callable[[object], T]

GUESS_CHARS_MAX = 64  # a close match is sought only for keys somebody could have typed


class Fields:
    """One mapping and its path. `is_void` when there was no mapping to look into."""

    __slots__ = ("_allowed", "_wrong", "is_void", "members", "path", "problems")

    def __init__(self, raw: object, path: str, problems: list[Problem]) -> None:
        self.path = path
        self.problems = problems
        self.is_void = not isinstance(raw, dict)
        self.members: dict[object, object] = raw if isinstance(raw, dict) else {}
        self._allowed: set[str] = set()
        self._wrong: set[str] = set()

    def at(self, key: object) -> str:
        return joined(self.path, key)

    def note(self, key: str, remedy: str) -> None:
        """A rule is broken by the value under `key`."""
        self._wrong.add(key)
        value = shown(self.raw(key)) if key in self.members else MISSING
        self.problems.append(Problem(path=self.at(key), value=value, remedy=remedy))

    def is_wrong(self, *keys: str) -> bool:
        return any(key in self._wrong for key in keys)

    def has(self, key: str) -> bool:
        """Written at all; null counts as not written, as it does for Kubernetes."""
        return self.members.get(key) is not None

    def raw(self, key: str) -> object:
        return self.members.get(key)

    def need(self, key: str, read: Reader[T]) -> T | None:
        """A required value, or None with the problem noted."""
        self._allowed.add(key)
        if self.has(key):
            return self._read(key, read, None)
        self._miss(key)
        return None

    def take(self, key: str, read: Reader[T], default: D) -> T | D:
        """An optional value; the default when it is absent, and also when it is wrong."""
        self._allowed.add(key)
        return self._read(key, read, default) if self.has(key) else default

    def inside(self, key: str, *, required: bool = False) -> "Fields":
        """The mapping under a key; a void one when it is absent or is no mapping."""
        self._allowed.add(key)
        raw = self.raw(key)
        if raw is None and required:
            self._miss(key)
        elif raw is not None and not isinstance(raw, dict):
            self.note(key, "write a mapping of fields")
        return Fields(raw, self.at(key), self.problems)

    def each(self, key: str) -> list["Fields"]:
        """The mappings of a list; members that are none are noted and come as void ones."""
        path = self.at(key)
        found = []
        for index, raw in enumerate(self._list(key)):
            place = joined(path, index)
            if not isinstance(raw, dict):
                self._wrong.add(key)
                self.problems.append(
                    Problem(path=place, value=shown(raw), remedy="write a mapping of fields")
                )
            found.append(Fields(raw, place, self.problems))
        return found

    def set_of(self, key: str, read: Reader[str]) -> tuple[str, ...]:
        """A list of texts of one kind, each written once."""
        path = self.at(key)
        found: dict[str, None] = {}
        for index, raw in enumerate(self._list(key)):
            try:
                value = read(raw)
                if value in found:
                    raise WrongValue("it is listed twice; list it once")
                found[value] = None
            except WrongValue as wrong:
                self._wrong.add(key)
                self.problems.append(
                    Problem(path=joined(path, index), value=shown(raw), remedy=wrong.remedy)
                )
        return tuple(found)

    def allow(self, *keys: str) -> None:
        """Fields that are legal and somebody else's to check."""
        self._allowed.update(keys)

    def finish(self) -> None:
        """Every field that was not asked for is a mistake; likely a misspelt one that was."""
        if len(self.members) == sum(1 for key in self._allowed if key in self.members):
            return
        allowed = sorted(self._allowed)
        for key in self.members:
            if key not in self._allowed:
                self.problems.append(
                    Problem(
                        path=self.at(key),
                        value=shown(self.members[key]),
                        remedy=_guess(key, allowed),
                    )
                )

    def _list(self, key: str) -> Iterator[object]:
        self._allowed.add(key)
        raw = self.raw(key)
        if isinstance(raw, list):
            yield from raw
        elif raw is not None:
            self.note(key, "write a list")

    def _read(self, key: str, read: Reader[T], default: D) -> T | D:
        try:
            return read(self.raw(key))
        except WrongValue as wrong:
            self.note(key, wrong.remedy)
            return default

    def _miss(self, key: str) -> None:
        # Under a mapping that is itself missing or wrong, one problem has been noted already.
        self._wrong.add(key)
        if not self.is_void:
            self.problems.append(
                Problem(path=self.at(key), value=MISSING, remedy="write this field")
            )


def _guess(key: object, allowed: list[str]) -> str:
    if not isinstance(key, str):
        return "write keys as text"
    near = get_close_matches(key, allowed, n=1) if len(key) <= GUESS_CHARS_MAX else []
    if near:
        return f"there is no such field; did you mean {near[0]}?"
    return "there is no such field; legal here: " + (", ".join(allowed) or "none")
