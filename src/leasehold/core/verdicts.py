"""The answers decisions give: a plan, or a refusal with its reason, numbers and remedy.

A refusal is a value, never an exception: waiting is normal in a scheduler. Every reason says
whether waiting alone can clear it.
"""

from enum import StrEnum
from typing import Literal, assert_never

from leasehold.core.facts import EnvelopeKey, Record, Relation


class Refusal(StrEnum):
    """Why something cannot be had now."""

    OWNER_NOT_ALLOWED = "OwnerNotAllowed"
    NO_ENVELOPE = "NoEnvelope"
    WINDOW_NOT_OPEN = "WindowNotOpen"
    WINDOW_CLOSED = "WindowClosed"
    CONCURRENCY = "ConcurrencyExhausted"
    GPU_HOURS = "GPUHoursExhausted"
    AGGREGATE = "AggregateCap"
    LENDING_DISABLED = "LendingDisabled"
    ACL_DENIED = "ACLDenied"
    LENDING_CAP = "LendingCapExhausted"
    LENDING_HOURS = "LendingHoursExhausted"
    BORROW_LIMIT = "BorrowLimit"
    RECIPROCAL_LOAN = "ReciprocalLoan"
    OTHER_LOCATION = "OtherLocation"
    NO_SUCH_FLAVOR = "NoSuchFlavor"
    NO_DOMAIN_FITS = "NoDomainFits"
    POD_TOO_LARGE = "PodTooLarge"
    FLEET_TOO_SMALL = "FleetTooSmall"
    NO_PLACE_FOR_SPARES = "NoPlaceForSpares"
    NODE_RESOURCES = "InsufficientNodeResources"
    CAPACITY = "InsufficientCapacity"
    HELD = "HeldForReservation"
    GANG_TOO_LARGE = "GangTooLarge"
    BIND_FAILING = "BindFailing"
    RETRYING = "WorkloadFailed"
    BINDER_DISABLED = "BinderDisabled"
    QUARANTINED = "Quarantined"

    @property
    def clears_with_time(self) -> bool:
        """Whether nobody needs to do anything for it to clear, given time."""
        match self:
            case (
                Refusal.WINDOW_NOT_OPEN
                | Refusal.CONCURRENCY
                | Refusal.GPU_HOURS
                | Refusal.AGGREGATE
                | Refusal.LENDING_CAP
                | Refusal.LENDING_HOURS
                | Refusal.RECIPROCAL_LOAN
                | Refusal.CAPACITY
                | Refusal.NODE_RESOURCES
                | Refusal.HELD
                | Refusal.BIND_FAILING
                | Refusal.RETRYING
            ):
                return True
            case (
                Refusal.OWNER_NOT_ALLOWED
                | Refusal.NO_ENVELOPE
                | Refusal.WINDOW_CLOSED
                | Refusal.LENDING_DISABLED
                | Refusal.ACL_DENIED
                | Refusal.BORROW_LIMIT
                | Refusal.OTHER_LOCATION
                | Refusal.NO_SUCH_FLAVOR
                | Refusal.NO_DOMAIN_FITS
                | Refusal.POD_TOO_LARGE
                | Refusal.FLEET_TOO_SMALL
                | Refusal.NO_PLACE_FOR_SPARES
                | Refusal.GANG_TOO_LARGE
                | Refusal.BINDER_DISABLED
                | Refusal.QUARANTINED
            ):
                return False
            case _:
                assert_never(self)

    @property
    def is_about_money(self) -> bool:
        return self in _MONEY

    @property
    def is_about_room(self) -> bool:
        """Return whether GPUs are what a run lacks for now. Why exactly there is no room (none is
        free, the free ones are apart, or held) changes with every lease of the fleet."""
        return self in (
            Refusal.CAPACITY,
            Refusal.HELD,
            Refusal.NO_DOMAIN_FITS,
            Refusal.NODE_RESOURCES,
        )

    def _is_money(self) -> bool:
        match self:
            case (
                Refusal.OWNER_NOT_ALLOWED
                | Refusal.NO_ENVELOPE
                | Refusal.WINDOW_NOT_OPEN
                | Refusal.WINDOW_CLOSED
                | Refusal.CONCURRENCY
                | Refusal.GPU_HOURS
                | Refusal.AGGREGATE
                | Refusal.LENDING_DISABLED
                | Refusal.ACL_DENIED
                | Refusal.LENDING_CAP
                | Refusal.LENDING_HOURS
                | Refusal.BORROW_LIMIT
                | Refusal.RECIPROCAL_LOAN
                | Refusal.OTHER_LOCATION
            ):
                return True
            case (
                Refusal.NO_SUCH_FLAVOR
                | Refusal.NO_DOMAIN_FITS
                | Refusal.POD_TOO_LARGE
                | Refusal.FLEET_TOO_SMALL
                | Refusal.NO_PLACE_FOR_SPARES
                | Refusal.NODE_RESOURCES
                | Refusal.CAPACITY
                | Refusal.HELD
                | Refusal.GANG_TOO_LARGE
                | Refusal.BIND_FAILING
                | Refusal.RETRYING
                | Refusal.BINDER_DISABLED
                | Refusal.QUARANTINED
            ):
                return False
            case _:
                assert_never(self)

    @property
    def is_for_good(self) -> bool:
        """On the nodes there are; no start is planned, and nobody is cut for one."""
        return self in (
            Refusal.POD_TOO_LARGE,
            Refusal.FLEET_TOO_SMALL,
            Refusal.NO_PLACE_FOR_SPARES,
        )


_MONEY = frozenset(each for each in Refusal if each._is_money())  # asked for every run in line


# What an envelope can say for itself when it is asked to pay.
HeldBack = Literal[
    Refusal.WINDOW_NOT_OPEN,
    Refusal.WINDOW_CLOSED,
    Refusal.CONCURRENCY,
    Refusal.GPU_HOURS,
    Refusal.AGGREGATE,
    Refusal.LENDING_DISABLED,
    Refusal.ACL_DENIED,
    Refusal.LENDING_CAP,
    Refusal.LENDING_HOURS,
    Refusal.BORROW_LIMIT,
    Refusal.RECIPROCAL_LOAN,
    Refusal.OTHER_LOCATION,
]


class CoverStep(Record):
    """One envelope of a walk: what it gave, and what kept it from giving more."""

    envelope: EnvelopeKey
    relation: Relation
    taken: int
    held_back: HeldBack | None = None  # None: it gave all that was asked
    limit: int = 0  # the cap that held it back, in GPUs or GPU-ms
    used: int = 0

    @property
    def verdict(self) -> int | str:
        """What the trace shows: GPUs taken, or the reason for none."""
        if self.taken or self.held_back is None:
            return self.taken
        return str(self.held_back)


class Segment(Record):
    """So many GPUs paid by one envelope."""

    envelope: EnvelopeKey
    owner: str
    gpus: int
    relation: Relation


class Covered(Record):
    segments: tuple[Segment, ...]
    trace: tuple[CoverStep, ...]


class Refused(Record):
    """Not now. `short_by` is in GPUs; `remedy` is a sentence for a person, without counts that
    change with every lease: those are in `now`."""

    reason: Refusal
    remedy: str
    now: str = ""
    asked: int = 0
    short_by: int = 0
    subject: str = ""  # the envelope, domain or other thing that refused
    limit: int = 0
    used: int = 0
    trace: tuple[CoverStep, ...] = ()
    time_may_help: bool = False
    elsewhere: tuple[EnvelopeKey, ...] = ()  # asked in vain, where nobody pays

    @property
    def payers_asked(self) -> set[EnvelopeKey]:
        return {*self.elsewhere, *(step.envelope for step in self.trace)}

    @property
    def essence(self) -> tuple[str, str]:
        """Return what a person is told once: another count, or another reason why there is no
        room, is no news."""
        return ("room", "") if self.reason.is_about_room else (str(self.reason), self.remedy)

    @property
    def says(self) -> str:
        where = f" ({self.subject})" if self.subject else ""
        return f"{self.reason}{where}: {self.remedy}"


class PodPlace(Record):
    """One pod, or one spare's worth of slots, on one node."""

    group: int
    index: int
    node: str
    spare: bool = False
    gpus: int = 0
    on_spare: tuple[int, ...] = ()  # a filler's: the slots of somebody's spare it sits on


class Packed(Record):
    places: tuple[PodPlace, ...]  # in group order, a group's active pods before its spares
    left_over: tuple[tuple[str, int], ...] = ()  # domain, GPUs free afterwards
    plan_hash: str = ""

    @property
    def gpus_by_node(self) -> tuple[tuple[str, int], ...]:
        by_node: dict[str, int] = {}
        for each in self.places:
            by_node[each.node] = by_node.get(each.node, 0) + each.gpus
        return tuple(sorted(by_node.items()))


class Admitted(Record):
    """Funded and placed: one or several (location, segments) and the places."""

    covered: tuple[tuple[tuple[str, str], Covered], ...]  # (region, cluster) -> cover of its part
    packed: Packed
    first_trace: tuple[CoverStep, ...] = ()  # of the location tried first, if it went elsewhere

    @property
    def trace(self) -> tuple[CoverStep, ...]:
        """The walk of cover at the location that was tried first."""
        return self.first_trace or self.covered[0][1].trace

    @property
    def fills(self) -> bool:
        """Whether a pod of it sits on another run's spare."""
        return any(pod.on_spare for pod in self.packed.places)
