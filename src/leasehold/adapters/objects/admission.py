"""Admission checks on the objects that users write, for stores that are also the API server.

Given to our stores by `leasehold up` and by scenarios. It applies the checks of `core.objects` and
one rule between objects: parents must not form a cycle. It changes no object, and reads other
objects from the store.
"""

from collections.abc import Callable
from contextlib import suppress

from leasehold.adapters.objects.storage import Stored, decode, nothing
from leasehold.core.facts import Budget
from leasehold.core.names import Wire
from leasehold.core.objects.budget import budget_from_wire, parent_cycles
from leasehold.core.objects.edits import check_edit
from leasehold.core.objects.manifests import USER_KINDS, check_manifest
from leasehold.core.objects.problems import Problem
from leasehold.core.objects.wire import part

Problems = list[tuple[str, str]]

# The memory store notes the grace of a deletion in this field; manifests must not have it.
_STORE_FIELDS = ("deletionGraceMs",)


class Admission:
    """The admission check. It is called with an object before and after a write, and with a
    function that reads other objects."""

    def __init__(self, *, also: Callable[[Wire], Problems] = lambda _: []) -> None:
        """`also` returns what this server cannot honour in a Run.

        The server may have changed since a Run was written. So an edit of that Run is rejected only
        for problems that the edit introduces."""
        self._also = also
        self._budgets: dict[bytes, Budget | None] = {}  # by stored body, from the last check

    def __call__(self, old: Wire | None, new: Wire, stored: Stored = nothing) -> Problems:
        if new.get("kind") not in USER_KINDS or _is_leaving(old, new):
            return []
        found = self.problems(old, new, stored)
        said = [(problem.path, f"{problem.value}: {problem.remedy}") for problem in found]
        is_template_sound = not any(path.startswith("spec.template") for path, _ in said)
        if new["kind"] == "Run" and is_template_sound:
            said += self._unhonoured(old, new, {path for path, _ in said})
        return said

    def problems(self, old: Wire | None, new: Wire, stored: Stored = nothing) -> list[Problem]:
        metadata = {
            key: value for key, value in part(new, "metadata").items() if key not in _STORE_FIELDS
        }
        written = {**new, "metadata": metadata}
        found = check_manifest(written, before=old)
        if not found and old is not None:
            found = check_edit(old, written)
        if not found and new["kind"] == "Budget":
            found = self._cycles(budget_from_wire(written), stored)
        return found

    def _unhonoured(self, old: Wire | None, new: Wire, told: set[str]) -> Problems:
        """Return what this server cannot honour in the new object. Fields in `told`, which have
        another problem already, are left out, and so are problems that `old` had."""
        found = [problem for problem in self._also(new) if problem[0] not in told]
        known = self._also(old) if found and old is not None else []
        return [problem for problem in found if problem not in known]

    def _cycles(self, budget: Budget, stored: Stored) -> list[Problem]:
        self._budgets = {
            body: self._budgets[body] if body in self._budgets else _budget(body)
            for body in stored("Budget")
        }
        others = [each for each in self._budgets.values() if each and each.key != budget.key]
        cycles = parent_cycles([*others, budget])
        return [problem for found, problem in cycles if found.key == budget.key]


def _budget(body: bytes) -> Budget | None:
    """Return the Budget in a stored body; None if it cannot be read, which counts as one without
    parents."""
    with suppress(ValueError):
        return budget_from_wire(decode(body))
    return None


def _is_leaving(old: Wire | None, new: Wire) -> bool:
    """Return whether the object is being deleted and its spec is unchanged. Such a write changes
    only finalizers, and is always allowed."""
    if old is None or "deletionTimestamp" not in part(old, "metadata"):
        return False
    return old.get("spec") == new.get("spec")
