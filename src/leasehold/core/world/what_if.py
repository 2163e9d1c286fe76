"""What-ifs: changes of the World's indices that are undone exactly.

While a what-if is open, `Fleet` and `Accounts` note the inverse of every change here. Otherwise
nothing is noted, so that folding history costs nothing extra.
"""

from collections.abc import Callable

from leasehold.core.world.steps import Steps


class WhatIf:
    """A stack of inverse operations."""

    def __init__(self, steps: Steps | None = None) -> None:
        self.steps = steps or Steps()  # every change counts as one step
        self.active = False  # whether a what-if is open; callers check it before they note
        self._inverses: list[Callable[[], None]] = []
        self._open = 0

    def note(self, inverse: Callable[[], None]) -> None:
        """Keep the inverse of a change that was just made.

        Raises `TooManySteps`; even then the change is undone at the end.
        """
        assert self.active
        self._inverses.append(inverse)
        self.steps.take()

    def opened(self) -> "OpenWhatIf":
        """Open a what-if for a `with` block; its changes are undone however the block ends."""
        return OpenWhatIf(self)

    def begin(self) -> int:
        self._open += 1
        self.active = True
        return len(self._inverses)

    def end(self, begun: int, *, is_kept: bool) -> None:
        """Undo every change since `begun`, latest first.

        If `is_kept`, nothing is undone now: the enclosing what-if undoes the changes with its own.
        """
        assert self._open > is_kept, "nothing is open that could end"
        assert begun <= len(self._inverses)
        if not is_kept:
            self.active = False  # running an inverse must not be noted as a change
            while len(self._inverses) > begun:
                self._inverses.pop()()
        self._open -= 1
        self.active = self._open > 0


class OpenWhatIf:
    """One what-if, as a context manager."""

    __slots__ = ("_begun", "_is_kept", "_what_if")

    def __init__(self, what_if: WhatIf) -> None:
        self._what_if = what_if
        self._begun = 0
        self._is_kept = False

    def __enter__(self) -> "OpenWhatIf":
        self._begun = self._what_if.begin()
        return self

    def keep(self) -> None:
        """Leave the changes to the enclosing what-if, unless the block raises."""
        self._is_kept = True

    def __exit__(self, raised: object, *_: object) -> None:
        self._what_if.end(self._begun, is_kept=self._is_kept and raised is None)
