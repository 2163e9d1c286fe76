"""A decision that failed, and about whom: raised by `decide`, contained by the loop."""

from leasehold.core.facts import Uid


class Undecided(Exception):  # noqa: N818 - it says what became of the turn
    """Something of ours failed while a run was thought about; its uid, or "" if it was none."""

    def __init__(self, about: Uid) -> None:
        super().__init__(about)
        self.about = about
