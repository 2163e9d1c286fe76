"""The tree of owners that the `parents` of Budgets define.

`cover` asks for the owners of each step of its walk. Built again when a Budget changes; answers are
computed lazily, so that unused owners cost nothing.
"""

from collections.abc import Iterable

from leasehold.core.facts import Budget, Envelope

Selector = tuple[str | None, str | None]  # region and cluster, None for any


class Tree:
    """The owners that have Budgets, and all their ancestors."""

    def __init__(self, budgets: Iterable[Budget]) -> None:
        self._parents: dict[str, tuple[str, ...]] = {}
        self._envelopes: dict[str, list[Envelope]] = {}
        self._spenders: dict[str, set[str]] = {}  # owner -> namespaces whose runs may charge it
        for budget in sorted(budgets, key=lambda each: each.key):
            known = self._parents.get(budget.owner, ())
            added = tuple(parent for parent in budget.parents if parent not in known)
            self._parents[budget.owner] = known + added
            self._envelopes.setdefault(budget.owner, []).extend(budget.envelopes)
            spenders = self._spenders.setdefault(budget.owner, set())
            spenders.update((budget.namespace, *budget.namespaces))
        self._children: dict[str, list[str]] = {}
        self._link_children()
        self._ancestors: dict[str, tuple[tuple[str, ...], ...]] = {}
        self._cousins: dict[str, tuple[str, ...]] = {}
        self._selectors: dict[str, dict[Selector, None]] = {}

    def parents(self, owner: str) -> tuple[str, ...]:
        """Return the parents named in the owner's Budgets; without a Budget, the path without
        its last part."""
        known = self._parents.get(owner)
        if known is not None:
            return known
        head, colon, _ = owner.rpartition(":")
        return (head,) if colon else ()

    def may_spend(self, owner: str, namespace: str) -> bool:
        """Return whether runs of this namespace may name the owner: one of its Budgets is in the
        namespace or lists it."""
        return namespace in self._spenders.get(owner, ())

    def siblings(self, owner: str) -> tuple[str, ...]:
        """Return the other owners with a common parent, without ancestors."""
        above = {name for level in self.ancestors(owner) for name in level}
        found = {
            child for parent in self.parents(owner) for child in self._children.get(parent, ())
        }
        return tuple(sorted(found - above - {owner}))

    def ancestors(self, owner: str) -> tuple[tuple[str, ...], ...]:
        """Return the levels of ancestors, nearest first. An owner reached twice is in the
        nearest level."""
        known = self._ancestors.get(owner)
        if known is None:
            known = self._ancestors[owner] = self._climb(owner)
        return known

    def relatives(self, owner: str) -> tuple[str, ...]:
        """Return every owner with a common ancestor, including ancestors and descendants."""
        known = self._cousins.get(owner)
        if known is None:
            seen = {owner, *(name for level in self.ancestors(owner) for name in level)}
            frontier = sorted(seen)
            while frontier:
                below = {child for name in frontier for child in self._children.get(name, ())}
                frontier = sorted(below - seen)
                seen |= below
            known = self._cousins[owner] = tuple(sorted(seen - {owner}))
        return known

    def envelopes(self, owners: Iterable[str], flavor: str) -> list[Envelope]:
        """Return the envelopes of these owners and this flavor, the earliest window end first."""
        found = [
            envelope
            for owner in owners
            for envelope in self._envelopes.get(owner, ())
            if envelope.flavor == flavor
        ]
        if len(found) > 1:
            found.sort(key=lambda envelope: (envelope.end, envelope.key.split("/")))
        return found

    def selectors(self, flavor: str) -> Iterable[Selector]:
        """Return every selector of the envelopes of a flavor once."""
        known = self._selectors.get(flavor)
        if known is None:
            known = self._selectors[flavor] = {
                (envelope.region, envelope.cluster): None
                for envelopes in self._envelopes.values()
                for envelope in envelopes
                if envelope.flavor == flavor
            }
        return known

    def _climb(self, owner: str) -> tuple[tuple[str, ...], ...]:
        seen = {owner}
        levels: list[tuple[str, ...]] = []
        level = self.parents(owner)
        while level:
            fresh = tuple(sorted(set(level) - seen))
            if not fresh:
                break
            levels.append(fresh)
            seen.update(fresh)
            level = tuple(parent for name in fresh for parent in self.parents(name))
        return tuple(levels)

    def _link_children(self) -> None:
        # Owners without a Budget are part of the tree: two teams may be related only through a
        # division that has no Budget.
        todo = sorted(self._parents)
        seen = set(todo)
        while todo:
            owner = todo.pop()
            for parent in self.parents(owner):
                self._children.setdefault(parent, []).append(owner)
                if parent not in seen:
                    seen.add(parent)
                    todo.append(parent)
