"""Who may decide: a tenure of one key, held by one process at a time, with an epoch that only
rises.

Called by `shell.keeper` and the control plane's composition; implemented over the Store port by
`shell.tenure`, so that tenure is kept where the ledger's head is kept. Nobody compares a time that
another machine wrote with a clock of its own: a contender takes a key over when it has itself seen
the same record for `Margins.take`, and a holder believes for `Margins.hold`, counted from before it
sent. Expiry lets another one try; only the epoch, sealed into the head, stops the old one.
"""

from typing import Protocol

from leasehold.core.facts import Record
from leasehold.core.objects.tenure import Holder, TenureRecord
from leasehold.core.units import SECOND, Millis, format_span
from leasehold.ports.runtime import Signal

DRIFT_PERCENT = 20  # the most by which a machine's clock may run fast or slow


class Margins(Record, frozen=True):
    """How long one process may decide before another takes over."""

    take: Millis = 15 * SECOND
    hold: Millis = 10 * SECOND
    soft_stop: Millis = 7 * SECOND
    renew: Millis = 3 * SECOND
    timeout: Millis = 2 * SECOND
    stall: Millis = 60 * SECOND  # of a loop that decides and answers nothing, until it is deposed

    @property
    def hold_max(self) -> Millis:
        return self.take * (100 - DRIFT_PERCENT) // (100 + DRIFT_PERCENT)


def margin_problems(margins: Margins) -> list[tuple[str, Millis, str]]:
    """Field, value and remedy of everything that would let two processes believe at once, or none
    believe for long."""
    found = []
    if margins.hold > margins.hold_max:
        remedy = (
            f"hold must be at most take * (1 - drift) / (1 + drift) = {format_span(margins.take)} *"
            f" 0.{100 - DRIFT_PERCENT} / 1.{DRIFT_PERCENT} = {format_span(margins.hold_max)}; "
            "write at most that"
        )
        found.append(("hold", margins.hold, remedy))
    ordered = (
        ("renew", margins.renew, "softStop", margins.soft_stop),
        ("softStop", margins.soft_stop, "hold", margins.hold),
    )
    for low, below, high, above in ordered:
        if below >= above:
            found.append((low, below, f"write less than tenure.{high}, {format_span(above)}"))
    if margins.stall < margins.take:
        remedy = f"a decision may take some seconds; write tenure.take, {format_span(margins.take)}"
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


class BadMargins(ValueError):  # noqa: N818 - it says what they are
    """The margins do not keep two processes apart; the text has the arithmetic."""

    def __init__(self, problems: list[tuple[str, Millis, str]]) -> None:
        assert problems, "margins are bad for a reason"
        self.problems = problems
        super().__init__(
            "; ".join(f"tenure.{path} {format_span(value)}: {why}" for path, value, why in problems)
        )


class Tenure(Record, frozen=True):
    """What was granted: from `since`, the holder's own monotonic time before it asked."""

    key: str
    holder: Holder
    epoch: int
    version: int  # of the stored record
    since: Millis


class HeldByOther(Record, frozen=True):
    """Nothing was granted; `wait` is how long the same record must still be seen, by our clock."""

    holder: str
    epoch: int
    wait: Millis


class NotHolder(Record, frozen=True):
    """The record names somebody else, or nobody: what was held is lost for good."""

    holder: str
    epoch: int


class Expired(Record, frozen=True):
    """Its time was over before it was renewed: acquire again, under a new epoch."""

    late_by: Millis


class Unanswered(Record, frozen=True):
    """No definite answer came in time. Nothing is granted, and what is believed stays as it is."""

    why: str


Acquired = Tenure | HeldByOther | Unanswered
Renewed = Tenure | NotHolder | Expired | Unanswered
Released = None | NotHolder | Unanswered


class Tenures(Protocol):
    """The tenures of one process: its beliefs are its own, the records are everybody's."""

    async def acquire(self, key: str, holder: Holder, *, above: int = 0) -> Acquired:
        """Take a key that is free, was given back, or whose record has stood still for long enough.
        The epoch is above every earlier one, and above `above` (what the ledger's head has)."""
        ...

    async def renew(self, tenure: Tenure) -> Renewed:
        """The same tenure for longer, if it is still held and still valid."""
        ...

    async def release(self, tenure: Tenure) -> Released:
        """Give it back: the next one need not wait. It is not believed from before it is sent."""
        ...

    def is_valid(self, tenure: Tenure) -> bool:
        """Whether we may still believe in it, by our own clock and without asking anybody."""
        ...

    def age(self, tenure: Tenure) -> Millis | None:
        """How long ago the last renewal that was granted was sent; None when it is not believed."""
        ...

    async def follow(self, key: str, wake: Signal) -> None:
        """For ever: sets `wake` when the record may have changed. It is a hint and may lag."""
        ...

    async def inspect(self, key: str) -> TenureRecord | None:
        """The record as it is stored, for whoever only wants to know."""
        ...
