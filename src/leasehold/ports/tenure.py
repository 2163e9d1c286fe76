"""The tenure port: the right to lead, held by one process at a time, with an epoch that only rises.

Called by `shell.leadership.keeper` and by the code that puts a control plane together. Implemented
over the Store port by `shell.leadership.tenure`, so the tenure record lives in the same store as
the ledger's head. No process compares a time written by another machine with its own clock. A
contender takes a key over once it has seen the same record unchanged for `Margins.take`. A holder
considers itself leader for `Margins.hold`, counted from before it sent the request. Expiry only
lets another process try; the epoch, sealed into the head, is what stops the old leader.
"""

from typing import Protocol

from leasehold.core.facts import Record
from leasehold.core.objects.tenure import Holder, TenureRecord
from leasehold.core.units import SECOND, Millis, format_span
from leasehold.ports.runtime import Signal

DRIFT_PERCENT = 20  # maximum error of a machine's clock rate, fast or slow


class Margins(Record, frozen=True):
    """The times of a tenure: how long a holder leads, when it renews, and when another may take
    over.

    Example: a holder leads for 10 s (`hold`) after its last renewal. Another process takes over no
    earlier than 15 s (`take`) after that. So their clocks may run at different rates.
    """

    take: Millis = 15 * SECOND
    hold: Millis = 10 * SECOND
    soft_stop: Millis = 7 * SECOND
    renew: Millis = 3 * SECOND
    timeout: Millis = 2 * SECOND
    stall: Millis = 60 * SECOND  # a leader whose loop hangs for so long is deposed

    @property
    def hold_max(self) -> Millis:
        return self.take * (100 - DRIFT_PERCENT) // (100 + DRIFT_PERCENT)


def margin_problems(margins: Margins) -> list[tuple[str, Millis, str]]:
    """Return (field, value, remedy) of each setting that keeps the margins from working.

    Such a setting could let two processes lead at once, or make a leader lose the tenure without
    need.
    """
    found = []
    if margins.hold > margins.hold_max:
        remedy = (
            f"hold must be at most take * (1 - drift) / (1 + drift) = {format_span(margins.take)} *"
            f" 0.{100 - DRIFT_PERCENT} / 1.{DRIFT_PERCENT} = {format_span(margins.hold_max)}; "
            "use at most that"
        )
        found.append(("hold", margins.hold, remedy))
    ordered = (
        ("renew", margins.renew, "softStop", margins.soft_stop),
        ("softStop", margins.soft_stop, "hold", margins.hold),
    )
    for low, below, high, above in ordered:
        if below >= above:
            found.append((low, below, f"use less than tenure.{high}, {format_span(above)}"))
    if margins.stall < margins.take:
        remedy = f"a decision can take some seconds; use tenure.take, {format_span(margins.take)}"
        found.append(("stall", margins.stall, f"{remedy}, or more"))
    spent = margins.renew + margins.timeout
    if margins.renew < margins.soft_stop <= spent:
        remedy = (
            f"one renewal that is not answered must not stop anybody: renew + timeout = "
            f"{format_span(margins.renew)} + {format_span(margins.timeout)} = {format_span(spent)} "
            f"must be less than softStop, {format_span(margins.soft_stop)}"
        )
        found.append(("timeout", margins.timeout, remedy))
    return found


class BadMargins(ValueError):  # noqa: N818 - named for the condition
    """The margins could let two processes lead at once; the message shows the arithmetic."""

    def __init__(self, problems: list[tuple[str, Millis, str]]) -> None:
        assert problems, "margins are bad for a reason"
        self.problems = problems
        super().__init__(
            "; ".join(f"tenure.{path} {format_span(value)}: {why}" for path, value, why in problems)
        )


class Tenure(Record, frozen=True):
    """A granted tenure.

    `since` is the holder's own monotonic time, taken before the request was sent.
    """

    key: str
    holder: Holder
    epoch: int
    version: int  # of the stored record
    since: Millis


class HeldByOther(Record, frozen=True):
    """Another process holds the tenure, and nothing was granted.

    `wait`: how long the record must still stay unchanged, by our clock, before it can be taken
    over.
    """

    holder: str
    epoch: int
    wait: Millis


class NotHolder(Record, frozen=True):
    """The record names another process or none: the tenure that this process held is lost for
    good."""

    holder: str
    epoch: int


class Expired(Record, frozen=True):
    """The tenure expired before it was renewed. It must be acquired again, under a new epoch."""

    late_by: Millis


class Unanswered(Record, frozen=True):
    """No definite answer came in time.

    Nothing is granted; a tenure that is held stays valid for as long as it was.
    """

    why: str


Acquired = Tenure | HeldByOther | Unanswered
Renewed = Tenure | NotHolder | Expired | Unanswered
Released = None | NotHolder | Unanswered


class Tenures(Protocol):
    """The tenures of one process. The records are shared; validity is judged by its own clock."""

    async def acquire(self, key: str, holder: Holder, *, above: int = 0) -> Acquired:
        """Take a key that is free, was released, or whose record was unchanged for long enough.

        The new epoch is above every earlier one, and above `above` (the epoch in the ledger's
        head).
        """
        ...

    async def renew(self, tenure: Tenure) -> Renewed:
        """Extend the tenure if it is still held and still valid."""
        ...

    async def release(self, tenure: Tenure) -> Released:
        """Release the tenure so that the next holder need not wait.

        The tenure counts as invalid even before the request is sent.
        """
        ...

    def is_valid(self, tenure: Tenure) -> bool:
        """Return whether the tenure is still valid by our own clock, without asking the store."""
        ...

    def age(self, tenure: Tenure) -> Millis | None:
        """Return the time since the last granted renewal was sent; None if the tenure is not
        valid."""
        ...

    async def follow(self, key: str, wake: Signal) -> None:
        """Set `wake` whenever the record may have changed, with some delay. This call never
        returns."""
        ...

    async def inspect(self, key: str) -> TenureRecord | None:
        """Return the stored record, for display only."""
        ...
