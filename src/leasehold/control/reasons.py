"""The reasons of notices about a run, a Budget or a node, besides why a run waits.

A notice has one of these or a `Refusal` as its reason. Events, metrics and logs depend on the
member, never on its message.
"""

from enum import StrEnum
from typing import assert_never

from leasehold.core.verdicts import Refusal


class NoticeReason(StrEnum):
    """The reason of a notice."""

    ACTIVATING = "Activating"
    ADMITTED = "Admitted"
    ANNOUNCED_ANEW = "AnnouncedAnew"
    BLOCKED = "Blocked"
    CANCELED = "Canceled"
    DRAIN = "Drain"
    DRAIN_TIMEOUT = "DrainTimeout"
    GROUP_LOST = "GroupLost"
    GROW = "Grow"
    HEALTHY = "Healthy"
    NODE_FAILURE = "NodeFailure"
    OVERDRAWN = "Overdrawn"
    POD_DELETED = "PodDeleted"
    REFINANCED = "Refinanced"
    RESERVED = "Reserved"
    RESOLVED = "Resolved"
    RUNNING = "Running"
    SHRINK = "Shrink"
    SWAP = "Swap"
    TIME_LIMIT = "TimeLimit"
    WINDOW_ENDS_FIRST = "WindowEndsFirst"

    @property
    def is_warning(self) -> bool:
        """Return whether a notice with this reason is a warning: a user or an operator may have to
        act."""
        match self:
            case (
                NoticeReason.BLOCKED
                | NoticeReason.DRAIN_TIMEOUT
                | NoticeReason.GROUP_LOST
                | NoticeReason.NODE_FAILURE
                | NoticeReason.OVERDRAWN
                | NoticeReason.POD_DELETED
                | NoticeReason.WINDOW_ENDS_FIRST
            ):
                return True
            case (
                NoticeReason.ACTIVATING
                | NoticeReason.ADMITTED
                | NoticeReason.ANNOUNCED_ANEW
                | NoticeReason.CANCELED
                | NoticeReason.DRAIN
                | NoticeReason.GROW
                | NoticeReason.HEALTHY
                | NoticeReason.REFINANCED
                | NoticeReason.RESERVED
                | NoticeReason.RESOLVED
                | NoticeReason.RUNNING
                | NoticeReason.SHRINK
                | NoticeReason.SWAP
                | NoticeReason.TIME_LIMIT
            ):
                return False
            case _:
                assert_never(self)


Reason = NoticeReason | Refusal


def is_warning(reason: Reason) -> bool:
    """Return whether a notice is a warning. Every refusal is one, because it makes a run wait."""
    return True if isinstance(reason, Refusal) else reason.is_warning
