"""A Reservation: a start that is planned, and how sure it is."""

from enum import StrEnum

from leasehold.core.facts import EnvelopeKey, Record, RunKey, Uid
from leasehold.core.units import Instant


class State(StrEnum):
    """A Reservation's state."""

    PENDING = "Pending"
    ACTIVATING = "Activating"
    RELEASED = "Released"
    CANCELED = "Canceled"
    BLOCKED = "Blocked"


class Confidence(StrEnum):
    EXACT = "exact"
    WINDOW = "window-aligned"
    CUTS = "needs-cuts"
    MONEY = "needs-money"


class Reservation(Record):
    """A start that is planned. `batch` announced it; the plan changes, the subject does not."""

    namespace: str
    name: str
    run: str
    uid: Uid  # the run's
    batch: int
    announced: Instant
    state: State
    commitment: str
    reason: str = ""
    message: str = ""
    starts: Instant = 0
    confidence: Confidence = Confidence.EXACT
    deficit: int = 0
    domains: tuple[str, ...] = ()
    nodes: tuple[str, ...] = ()
    payers: tuple[EnvelopeKey, ...] = ()
    releases: tuple[tuple[str, Instant], ...] = ()  # lease, when it ends
    remedies: tuple[str, ...] = ()
    odds: tuple[tuple[RunKey, int], ...] = ()  # run, percent
    since: Instant = 0  # when it took its present state
    immunity_since: Instant = 0  # since when it waits for others' immunity to end
    held_places: tuple[tuple[str, int], ...] = ()  # by an activation: node, GPUs
    held_money: tuple[tuple[EnvelopeKey, int, bool], ...] = ()  # payer, GPUs, whether borrowed

    @property
    def subject(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def run_key(self) -> RunKey:
        return f"{self.namespace}/{self.run}"
