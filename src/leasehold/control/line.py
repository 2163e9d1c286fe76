"""The line of runs that are planned in one pass: how deep it is, and what it may cost.

Made anew by the queue for every pass. It also keeps the outlooks that the pass's forecasts share.
"""

from leasehold.control.turn import Turn
from leasehold.core.admit import Wish
from leasehold.core.facts import Run
from leasehold.core.outlook import Ends, Outlook
from leasehold.core.policy import Policy
from leasehold.core.units import SECOND
from leasehold.core.verdicts import Refused

_PREVIEWS_PER_TURN = 32
_SAMPLES_PER_TURN = 4


class Line:
    """Who is planned: so many of an owner, so many in all; those short of money take no place."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._total = 0
        self._by_owner: dict[str, int] = {}
        self._outlooks: dict[tuple[str, int], Outlook] = {}
        self._ends: Ends = {}
        self._seen = -1  # leases that the outlooks know of
        self._previews = 0
        self._samples = 0

    def has_room(self, run: Run, refused: Refused) -> bool:
        if refused.reason.is_about_money:
            return True
        owner = run.spec.owner
        mine = self._by_owner[owner] = self._by_owner.get(owner, 0) + 1
        self._total += 1
        return (
            mine <= self._policy.reservation_depth_per_owner
            and self._total <= self._policy.reservation_depth
        )

    def place_of(self, run: Run) -> str:
        """Where the run that was asked about last stands, for a person."""
        owner, policy = run.spec.owner, self._policy
        return (
            f"number {self._by_owner[owner]} of {owner} and {self._total} of all in line, of "
            f"which the first {policy.reservation_depth_per_owner} of an owner and "
            f"{policy.reservation_depth} of all are planned"
        )

    def may_preview(self) -> bool:
        """Running resolve to see what it would do is dear: so many a turn, in order.

        The plans of the others stand until an event finds fewer ahead of them; asking again
        without one would find the same ones ahead, for ever.
        """
        self._previews += 1
        return self._previews <= _PREVIEWS_PER_TURN

    def may_sample(self, turn: Turn) -> bool:
        """Drawing a thousand seeds is dearer still: once each, so many a turn, the others soon."""
        self._samples += 1
        if self._samples > _SAMPLES_PER_TURN:
            turn.wake(turn.now + SECOND)
        return self._samples <= _SAMPLES_PER_TURN

    def forget_outlooks(self) -> None:
        """What one run tolerates is not there for the next."""
        self._outlooks.clear()
        self._ends.clear()

    def outlook(self, turn: Turn, wish: Wish) -> Outlook:
        """Made once per pass and pod size; corrected for what plans have been put in front."""
        world, agenda = turn.world, turn.agenda
        if self._seen != len(world.leases) or wish.run.spec.tolerations:
            self.forget_outlooks()
            self._seen = len(world.leases)
        for node in agenda.changed:
            for known in self._outlooks.values():
                known.correct(node)
        agenda.changed.clear()
        key = (wish.want.flavor, wish.want.pod_gpus)
        if key not in self._outlooks:
            mark = world.journal.mark()
            world.fleet.tolerate(wish.run.spec.tolerations)
            self._outlooks[key] = Outlook(
                world, agenda, flavor=key[0], gpus=key[1], now=turn.now, ends=self._ends
            )
            world.journal.undo(mark)
        return self._outlooks[key]
