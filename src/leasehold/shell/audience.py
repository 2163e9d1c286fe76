"""Who hears what the loop does: nothing that is only planned, and each of it as what it is.

The loop calls it and waits for nobody. By default nobody listens; a plane passes everything on to
events, metrics, notifications and the log, a simulation looks at every commit.
"""

from leasehold.control.turn import Turn
from leasehold.core.facts import Run
from leasehold.core.units import Instant
from leasehold.core.world.world import World


class Audience:
    """Hears everything and says nothing."""

    def said(self, at: Instant, words: str) -> None:
        """Of a decision, or of our own fate: for whoever reads along."""

    def alerted(self, at: Instant, words: str) -> None:
        """Somebody should look."""

    def committed(self, world: World, at: Instant) -> None:
        """Batches of a turn are true, and their leases written."""

    def turned(self, turn: Turn) -> None:
        """A turn is over: committed, written and told."""

    def untried(self, run: Run, why: str) -> None:
        """Nobody could see whether pods of it can be made."""

    def begin(self, step: str) -> None:
        """`decide` or `commit`, with `end` when it is done, for whoever has a watch."""

    def end(self, step: str) -> None: ...
