"""The observer interface of the loop.

The loop reports only committed facts here, apart from alerts and notices about itself, and waits
for no observer. The default does nothing; a plane forwards everything to events, metrics,
notifications and the log, and a simulation checks every commit.
"""

from leasehold.control.turn import Turn
from leasehold.core.facts import Run
from leasehold.core.units import Instant
from leasehold.core.world.world import World


class LoopObserver:
    """An observer that ignores everything; subclasses override what they need."""

    def said(self, at: Instant, words: str) -> None:
        """Report a decision, or a change of this process' leadership, in words for the log."""

    def alerted(self, at: Instant, words: str) -> None:
        """Report a problem that needs an operator's attention."""

    def committed(self, world: World, at: Instant) -> None:
        """Report that a turn's batches are committed and their leases written."""

    def turned(self, turn: Turn) -> None:
        """Report the end of a turn, when everything is committed and written."""

    def untried(self, run: Run, why: str) -> None:
        """Report that the server could not dry-run this run's pods."""

    def begin(self, step: str) -> None:
        """Note the start of a step (`decide` or `commit`) for timing; `end` notes its end."""

    def end(self, step: str) -> None: ...
