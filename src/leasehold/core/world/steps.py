"""The steps that decisions take, counted by Run: the budget that keeps one Run from stopping all.

Inner loops of packing, covering, forecasting and cutting count here what they look at or change.
Steps are counted and not timed, so that a simulation repeats them exactly. A Run about which a
decision takes more than `STEPS_MAX` is left to the loop, which puts it aside with the reason.
"""

from leasehold.core.facts import Uid

# Preempting for the largest gang that a ledger batch holds (1,024 pods, as many groups), on 10,000
# full nodes, takes 193,000 steps and 2.5 s of CPU. So this is about five seconds.
STEPS_MAX = 500_000


class TooManySteps(Exception):  # noqa: N818 - it says what happened
    """A decision about one Run takes more steps than the budget allows."""

    def __init__(self, most: int) -> None:
        super().__init__(
            f"deciding about it takes more than {most:,} steps; fewer groups, pods or sponsors "
            "take fewer"
        )


class Steps:
    """Counts for one turn. Without a Run (`about` is empty) nothing is ever refused: a question
    that looks at the World may not be cut off in the middle of a what-if."""

    def __init__(self) -> None:
        self.most = STEPS_MAX
        self.about: Uid = ""
        self.taken = 0
        self.by_run: dict[Uid, int] = {}
        self.over: frozenset[Uid] = frozenset()  # Runs that the loop puts aside for their steps

    def put_aside(self, over: frozenset[Uid]) -> None:
        """From now on these runs are told that they take too many steps."""
        self.over = over

    def begin_turn(self) -> None:
        """Forget the counts of the turn before."""
        self.by_run = {}
        self.about, self.taken = "", 0

    def begin(self, about: Uid) -> None:
        """Credit what was counted, and give the next decision a whole budget."""
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
        """Return the Run that took the most steps in this turn, its steps, and those of all."""
        total = sum(self.by_run.values())
        uid, steps = max(self.by_run.items(), key=lambda each: (each[1], each[0]), default=("", 0))
        return uid, steps, total
