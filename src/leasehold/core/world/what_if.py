"""Undo for what-if questions: an index that is changed under a mark can be put back exactly.

`Fleet` and `Accounts` note the inverse of every change here while a mark is set. Nothing is
noted outside a mark, so folding history costs nothing extra.
"""

from collections.abc import Callable

from leasehold.core.world.steps import Steps


class WhatIf:
    """A stack of inverse operations."""

    def __init__(self, steps: Steps | None = None) -> None:
        self.steps = steps or Steps()  # every change is one
        self._inverses: list[Callable[[], None]] = []
        self._marks = 0
        self.active = False  # whether anybody will want to undo; callers ask before they note

    def note(self, inverse: Callable[[], None]) -> None:
        assert self.active
        self.steps.take()
        self._inverses.append(inverse)

    def mark(self) -> int:
        """Begin a what-if; give the answer to `undo`."""
        self._marks += 1
        self.active = True
        return len(self._inverses)

    def keep(self, mark: int) -> None:
        """End a what-if and leave its changes to the one around it, which will undo them."""
        assert self._marks > 1, "there is none around it"
        assert mark <= len(self._inverses)
        self._marks -= 1

    def undo(self, mark: int) -> None:
        """Put back everything since `mark`, latest first."""
        assert self._marks > 0, "undo without a mark"
        self.active = False  # an inverse is not a change to be undone
        while len(self._inverses) > mark:
            self._inverses.pop()()
        self._marks -= 1
        self.active = self._marks > 0
