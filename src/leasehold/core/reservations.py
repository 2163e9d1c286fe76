"""Reservation: the planned start of a waiting run, and how certain that start is."""

from enum import StrEnum

from leasehold.core.facts import EnvelopeKey, Location, Record, Relation, RunKey, Uid
from leasehold.core.units import Instant


class State(StrEnum):
    """The lifecycle state of a Reservation."""

    PENDING = "Pending"
    ACTIVATING = "Activating"
    RELEASED = "Released"
    CANCELED = "Canceled"
    BLOCKED = "Blocked"


class Confidence(StrEnum):
    """How certain a planned start is (Q4 to Q6)."""

    EXACT = "exact"
    WINDOW = "window-aligned"
    CUTS = "needs-cuts"
    MONEY = "needs-money"


class HeldMoney(Record):
    """Money that a reservation has on the calendar: GPUs of one envelope, for groups in one
    location."""

    payer: EnvelopeKey
    gpus: int
    relation: Relation
    location: Location = ("", "")


class Reservation(Record):
    """The planned start of a waiting run.

    `batch` is the batch that announced it. If the plan changes, the Reservation stays the same.
    """

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
    releases: tuple[tuple[str, Instant], ...] = ()  # (lease, its known end)
    remedies: tuple[str, ...] = ()
    odds: tuple[tuple[RunKey, int], ...] = ()  # run, percent
    since: Instant = 0  # since when it is in its present state
    by_cuts: Instant = 0  # T of the announced start by preemption (Q5); 0: none
    by_family: Instant = 0  # announced start with the owner's own envelope (Q6); 0: none
    # Its entry on the calendar: places and money, from `held_from` on.
    held_from: Instant = 0
    held_places: tuple[tuple[str, int], ...] = ()  # (node, GPUs)
    held_money: tuple[HeldMoney, ...] = ()
    is_site: bool = False  # the places are a site (Q5): preemptible leases may still be in them

    @property
    def subject(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def run_key(self) -> RunKey:
        return f"{self.namespace}/{self.run}"
