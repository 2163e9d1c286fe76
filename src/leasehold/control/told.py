"""What people are told of a run, a Budget or a node while it is decided, besides why a run waits.

A notice says one of these or a `Refusal`. Events, metrics and logs go by the member, never by its
word.
"""

from enum import StrEnum
from typing import assert_never

from leasehold.core.verdicts import Refusal


class Told(StrEnum):
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
        """Whether somebody may have to do something."""
        match self:
            case (
                Told.BLOCKED
                | Told.DRAIN_TIMEOUT
                | Told.GROUP_LOST
                | Told.NODE_FAILURE
                | Told.OVERDRAWN
                | Told.POD_DELETED
                | Told.WINDOW_ENDS_FIRST
            ):
                return True
            case (
                Told.ACTIVATING
                | Told.ADMITTED
                | Told.ANNOUNCED_ANEW
                | Told.CANCELED
                | Told.DRAIN
                | Told.GROW
                | Told.HEALTHY
                | Told.REFINANCED
                | Told.RESERVED
                | Told.RESOLVED
                | Told.RUNNING
                | Told.SHRINK
                | Told.SWAP
                | Told.TIME_LIMIT
            ):
                return False
            case _:
                assert_never(self)


Reason = Told | Refusal


def is_warning(reason: Reason) -> bool:
    """Every refusal is one: a run waits for it."""
    return True if isinstance(reason, Refusal) else reason.is_warning
