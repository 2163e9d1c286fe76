"""A Reservation: a start that is planned, and how sure it is."""

from enum import StrEnum

from leasehold.core.facts import EnvelopeKey, Location, Record, Relation, RunKey, Uid
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


class Held(Record):
    """Money on the calendar: so many GPUs of an envelope, for groups in one location."""

    payer: EnvelopeKey
    gpus: int
    relation: Relation
    location: Location = ("", "")


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
    by_cuts: Instant = 0  # the start by cuts that was announced (Q5); 0: none
    by_family: Instant = 0  # the start with the owner's own envelope that was announced (Q6)
    # What it has on the calendar: places and money, from `held_from` on.
    held_from: Instant = 0
    held_places: tuple[tuple[str, int], ...] = ()  # node, GPUs
    held_money: tuple[Held, ...] = ()
    is_site: bool = False  # leases that may be cut may be in these places

    @property
    def subject(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def run_key(self) -> RunKey:
        return f"{self.namespace}/{self.run}"
