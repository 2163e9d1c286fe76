"""The reasons of notices about a run, a Budget or a node, besides why a run waits.

A notice has one of these or a `Refusal` as its reason. Events, metrics and logs depend on the
member, never on its message.
"""

from enum import StrEnum
from typing import assert_never

from leasehold.core.verdicts import Refusal


class Told(StrEnum):
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
        """Return whether a person may have to act."""
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
    """Return whether a notice is a warning. Every refusal is, because a run waits for it."""
    return True if isinstance(reason, Refusal) else reason.is_warning
