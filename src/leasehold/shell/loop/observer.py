"""The interface of components that observe the loop.

The loop reports only committed facts, apart from alerts and notices about itself, and waits for no
observer. The default does nothing. A plane forwards everything to events, metrics, notifications
and the log; a simulation checks every commit.
"""

from leasehold.control.turn import Turn
from leasehold.core.facts import Run
from leasehold.core.units import Instant
from leasehold.core.world.world import World


class LoopObserver:
    """An observer that ignores everything; subclasses override what they need."""

    def said(self, at: Instant, words: str) -> None:
        """Report, in words for the log, a decision or that this process gained or lost the
        leadership."""

    def alerted(self, at: Instant, words: str) -> None:
        """Report a problem that needs an operator's attention."""

    def committed(self, world: World, at: Instant) -> None:
        """Report that all batches of a turn are committed and their leases written."""

    def turned(self, turn: Turn) -> None:
        """Report the end of a turn: its batches are committed, and its other writes were sent."""

    def untried(self, run: Run, why: str) -> None:
        """Report that the API server could not dry-run the pods of `run`, and why."""

    def begin(self, step: str) -> None:
        """Start timing a step (`decide` or `commit`); `end` stops it."""

    def end(self, step: str) -> None: ...
