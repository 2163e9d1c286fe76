"""A decision that failed, and about whom: raised by `decide`, contained by the loop."""

from leasehold.core.facts import Uid
from leasehold.core.verdicts import Refusal, Refused
from leasehold.core.world.steps import TooManySteps
from leasehold.core.world.world import World


class Undecided(Exception):  # noqa: N818 - it says what became of the turn
    """Something of ours failed while a run was thought about; its uid, or "" if it was none."""

    def __init__(self, about: Uid) -> None:
        super().__init__(about)
        self.about = about


def why_put_aside(world: World, uid: Uid) -> Refused:
    """What a run is told that nothing is decided about any more."""
    if uid in world.steps.over:
        remedy = (
            f"{TooManySteps(world.steps.most)}; it is left alone, and tried again when it is "
            "edited, and by itself after a pause that grows from a minute to an hour"
        )
    else:
        remedy = (
            "a decision about this run failed; it is left alone until it is edited or the "
            "controller is restarted. Please report it"
        )
    return Refused(reason=Refusal.QUARANTINED, remedy=remedy)
