"""A mapping under check: returns typed values and collects every mistake, not only the first.

Used by the readers of manifests and of the configuration on raw JSON-like data. Never raises, for
any data: a wrong value reads as None or its default, and `is_wrong` is true for its key, so that
rules which depend on the value can be skipped.
"""

from collections.abc import Callable, Iterator
from difflib import get_close_matches
from typing import TypeVar

from leasehold.core.objects.problems import MISSING, Problem, joined, shown
from leasehold.core.objects.readers import WrongValue

T = TypeVar("T")
D = TypeVar("D")
Reader = Callable[[object], T]

GUESS_CHARS_MAX = 64  # guess what was meant only for keys of a realistic length


class Fields:
    """One mapping and its path. `is_void` is true if there was no mapping."""

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
        """Note a problem with the value under `key`."""
        self._wrong.add(key)
        value = shown(self.raw(key)) if key in self.members else MISSING
        self.problems.append(Problem(path=self.at(key), value=value, remedy=remedy))

    def is_wrong(self, *keys: str) -> bool:
        return any(key in self._wrong for key in keys)

    def has(self, key: str) -> bool:
        """Return whether the field is set; null counts as not set, as in Kubernetes."""
        return self.members.get(key) is not None

    def raw(self, key: str) -> object:
        return self.members.get(key)

    def need(self, key: str, read: Reader[T]) -> T | None:
        """Return a required value, or None with the problem noted."""
        self._allowed.add(key)
        if self.has(key):
            return self._read(key, read, None)
        self._miss(key)
        return None

    def take(self, key: str, read: Reader[T], default: D) -> T | D:
        """Return an optional value; the default if it is absent or wrong."""
        self._allowed.add(key)
        return self._read(key, read, default) if self.has(key) else default

    def inside(self, key: str, *, required: bool = False) -> "Fields":
        """Return the mapping under a key; a void one if it is absent or not a mapping."""
        self._allowed.add(key)
        raw = self.raw(key)
        if raw is None and required:
            self._miss(key)
        elif raw is not None and not isinstance(raw, dict):
            self.note(key, "use a mapping of fields")
        return Fields(raw, self.at(key), self.problems)

    def each(self, key: str) -> list["Fields"]:
        """Return the mappings of a list; a member that is not a mapping is noted and returned as
        void."""
        path = self.at(key)
        found = []
        for index, raw in enumerate(self._list(key)):
            place = joined(path, index)
            if not isinstance(raw, dict):
                self._wrong.add(key)
                self.problems.append(
                    Problem(path=place, value=shown(raw), remedy="use a mapping of fields")
                )
            found.append(Fields(raw, place, self.problems))
        return found

    def set_of(self, key: str, read: Reader[str]) -> tuple[str, ...]:
        """Return a list of texts of one kind without duplicates."""
        path = self.at(key)
        found: dict[str, None] = {}
        for index, raw in enumerate(self._list(key)):
            try:
                value = read(raw)
                if value in found:
                    raise WrongValue("the value is listed twice; list it once")
                found[value] = None
            except WrongValue as wrong:
                self._wrong.add(key)
                self.problems.append(
                    Problem(path=joined(path, index), value=shown(raw), remedy=wrong.remedy)
                )
        return tuple(found)

    def allow(self, *keys: str) -> None:
        """Accept fields that are checked elsewhere."""
        self._allowed.update(keys)

    def finish(self) -> None:
        """Note as unknown every field that was not read, with a likely spelling."""
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
            self.note(key, "use a list")

    def _read(self, key: str, read: Reader[T], default: D) -> T | D:
        try:
            return read(self.raw(key))
        except WrongValue as wrong:
            self.note(key, wrong.remedy)
            return default

    def _miss(self, key: str) -> None:
        # If the surrounding mapping is missing or wrong, that problem was already noted.
        self._wrong.add(key)
        if not self.is_void:
            self.problems.append(
                Problem(path=self.at(key), value=MISSING, remedy="this field is required")
            )


def _guess(key: object, allowed: list[str]) -> str:
    if not isinstance(key, str):
        return "keys must be strings"
    near = get_close_matches(key, allowed, n=1) if len(key) <= GUESS_CHARS_MAX else []
    if near:
        return f"there is no such field; did you mean {near[0]}?"
    return "there is no such field; allowed here: " + (", ".join(allowed) or "none")
