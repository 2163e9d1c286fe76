"""A failed decision and the run it was about: raised by `decide`, contained by the loop."""

from leasehold.core.facts import Uid
from leasehold.core.verdicts import Refusal, Refused
from leasehold.core.world.steps import TooManySteps
from leasehold.core.world.world import World


class DecisionFailed(Exception):  # noqa: N818 - named for the state of the turn
    """A decision failed with an internal error.

    `about` is the uid of the run that the decision was about, or "" if it was about no run.
    """

    def __init__(self, about: Uid) -> None:
        super().__init__(about)
        self.about = about


def why_put_aside(world: World, uid: Uid) -> Refused:
    """Return the refusal shown for a run that is skipped because a decision about it failed."""
    if uid in world.steps.over:
        remedy = (
            f"{TooManySteps(world.steps.most)}; the run is skipped, and tried again after an "
            "edit, or after a pause that grows from a minute to an hour"
        )
    else:
        remedy = (
            "a decision about this run failed because of a defect in leasehold; the run is "
            "skipped until it is edited or the controller is restarted. Please report this "
            "defect"
        )
    return Refused(reason=Refusal.QUARANTINED, remedy=remedy)
