"""What the server refuses of what users write, for a store that is also the server.

Given to a store of ours as its admission check, by `leasehold up` and by scenarios. It applies the
checks of `core.objects` and the one rule between objects, that parents do not go in a circle. It
changes nothing.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress

from leasehold.core.facts import Budget
from leasehold.core.objects.budget import budget_from_wire, parent_cycles
from leasehold.core.objects.edits import check_edit
from leasehold.core.objects.manifests import USER_KINDS, check_manifest
from leasehold.core.objects.problems import Problem
from leasehold.core.objects.wire import part
from leasehold.ports.store import Wire

Problems = list[tuple[str, str]]

# The memory store notes the grace of a deletion in milliseconds; no manifest may have this field.
_STORE_FIELDS = ("deletionGraceMs",)


class Admission:
    """Called by the store with an object before and after; it knows the Budgets it let in."""

    def __init__(self, *, also: Callable[[Wire], Problems] = lambda _: []) -> None:
        """`also` finds what those who will run a Run cannot honour in it. They may have been able
        to when it was written, so an edit answers only for what it brings in."""
        self._budgets: dict[str, Budget] = {}
        self._also = also

    def learn(self, budgets: Iterable[Wire]) -> None:
        """The Budgets that a store had before. One that cannot be read has no parents either."""
        for wire in budgets:
            with suppress(ValueError):
                budget = budget_from_wire(wire)
                self._budgets[budget.key] = budget

    def __call__(self, old: Wire | None, new: Wire) -> Problems:
        if new.get("kind") not in USER_KINDS:
            return []
        found = self.rehearse(old, new)
        if not found and new["kind"] == "Budget":
            budget = budget_from_wire(new)
            self._budgets[budget.key] = budget
        return found

    def rehearse(self, old: Wire | None, new: Wire) -> Problems:
        """The same answer about something that will not be written."""
        if new.get("kind") not in USER_KINDS or _is_leaving(old, new):
            return []
        found = self.problems(old, new)
        said = [(problem.path, f"{problem.value}: {problem.remedy}") for problem in found]
        is_template_sound = not any(path.startswith("spec.template") for path, _ in said)
        if new["kind"] == "Run" and is_template_sound:
            said += self._unhonoured(old, new, {path for path, _ in said})
        return said

    def problems(self, old: Wire | None, new: Wire) -> list[Problem]:
        metadata = {
            key: value for key, value in part(new, "metadata").items() if key not in _STORE_FIELDS
        }
        written = {**new, "metadata": metadata}
        found = check_manifest(written, before=old)
        if not found and old is not None:
            found = check_edit(old, written)
        if not found and new["kind"] == "Budget":
            found = self._cycles(budget_from_wire(written))
        return found

    def _unhonoured(self, old: Wire | None, new: Wire, told: set[str]) -> Problems:
        """Said together with the rest, not one after another; but once of each field."""
        found = [problem for problem in self._also(new) if problem[0] not in told]
        known = self._also(old) if found and old is not None else []
        return [problem for problem in found if problem not in known]

    def forget_budget(self, key: str) -> None:
        self._budgets.pop(key, None)

    def _cycles(self, budget: Budget) -> list[Problem]:
        others = [known for key, known in self._budgets.items() if key != budget.key]
        cycles = parent_cycles([*others, budget])
        return [problem for found, problem in cycles if found.key == budget.key]


def _is_leaving(old: Wire | None, new: Wire) -> bool:
    """What is being deleted may go whatever it says: only those who hold it change anything."""
    if old is None or "deletionTimestamp" not in part(old, "metadata"):
        return False
    return old.get("spec") == new.get("spec")
