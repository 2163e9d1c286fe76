"""Steps: counts the work that decisions take, per Run, so that no single Run can stop the
scheduler.

The inner loops of packing, covering, forecasting and preempting count what they look at or change.
Steps are counted instead of timed, so that a simulation repeats exactly. If a decision about one
Run takes more than `STEPS_MAX` steps, the loop puts the Run aside with that reason.
"""

from leasehold.core.facts import Uid

# Preempting for the largest gang that fits a ledger batch (1,024 pods in 1,024 groups) on 10,000
# full nodes takes 193,000 steps and 2.5 s of CPU. So the limit is about five seconds.
STEPS_MAX = 500_000


class TooManySteps(Exception):  # noqa: N818 - named for what happened
    """A decision about one Run takes more steps than allowed."""

    def __init__(self, most: int) -> None:
        super().__init__(
            f"a decision about this run takes more than {most:,} steps; use fewer groups, pods "
            "or sponsors"
        )


class Steps:
    """Counts the steps of one turn.

    Without a Run (`about` is empty) there is no limit: a question about the World must not be
    aborted in the middle of a what-if.
    """

    def __init__(self) -> None:
        self.most = STEPS_MAX
        self.about: Uid = ""
        self.taken = 0
        self.by_run: dict[Uid, int] = {}
        self.over: frozenset[Uid] = frozenset()  # Runs that the loop puts aside

    def put_aside(self, over: frozenset[Uid]) -> None:
        """Replace the set of runs that are put aside because they take too many steps."""
        self.over = over

    def begin_turn(self) -> None:
        """Reset the counts."""
        self.by_run = {}
        self.about, self.taken = "", 0

    def begin(self, about: Uid) -> None:
        """Add the steps counted so far to their Run, and count from zero for a decision about
        `about`."""
        if self.taken:
            self.by_run[self.about] = self.by_run.get(self.about, 0) + self.taken
        self.about, self.taken = about, 0

    def take(self, count: int = 1) -> None:
        """Count steps. Raises `TooManySteps`."""
        assert count >= 0, count
        self.taken += count
        if self.taken > self.most and self.about:
            raise TooManySteps(self.most)

    def costliest(self) -> tuple[Uid, int, int]:
        """Return the Run that took the most steps in this turn, its steps, and the steps of all
        Runs."""
        total = sum(self.by_run.values())
        uid, steps = max(self.by_run.items(), key=lambda each: (each[1], each[0]), default=("", 0))
        return uid, steps, total
