"""The results of decisions: a plan, or a refusal with its reason, numbers and remedy.

A refusal is a value, never an exception, because waiting is normal in a scheduler. Each reason
states whether time alone can clear it.
"""

from enum import StrEnum
from typing import Literal, assert_never

from leasehold.core.facts import EnvelopeKey, Record, Relation


class Refusal(StrEnum):
    """Why a request cannot be met now."""

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
        """Return whether the reason can clear without anybody changing anything."""
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
        """Return whether the run only lacks free GPUs at present.

        There are several such reasons: no GPU is free, the free ones are far apart, or they are
        held. With every lease that begins or ends, one of these reasons may replace another.
        """
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
        """Return whether the existing nodes can never hold the run: it is not planned and
        nothing is preempted for it (Q11)."""
        return self in (
            Refusal.POD_TOO_LARGE,
            Refusal.FLEET_TOO_SMALL,
            Refusal.NO_PLACE_FOR_SPARES,
        )


# a set, because every queued run is tested
_MONEY = frozenset(each for each in Refusal if each._is_money())


# The reasons why an envelope gives less than it was asked for.
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
    """One envelope that was asked for GPUs: how many it gave, and why it gave no more."""

    envelope: EnvelopeKey
    relation: Relation
    taken: int
    held_back: HeldBack | None = None  # None: it gave all that was asked
    limit: int = 0  # the cap that was reached, in GPUs or GPU-ms
    used: int = 0

    @property
    def verdict(self) -> int | str:
        """Return what the trace shows: the GPUs taken or, if none, the reason."""
        if self.taken or self.held_back is None:
            return self.taken
        return str(self.held_back)


class Segment(Record):
    """A number of GPUs paid by one envelope."""

    envelope: EnvelopeKey
    owner: str
    gpus: int
    relation: Relation


class Covered(Record):
    """The payers of a request, in order, and the trace of the search for them."""

    segments: tuple[Segment, ...]
    trace: tuple[CoverStep, ...]


class Refused(Record):
    """A request that cannot be met now. `short_by` is in GPUs; `remedy` is a sentence for the
    user, without counts that change with every lease: those are in `now`."""

    reason: Refusal
    remedy: str
    now: str = ""
    asked: int = 0
    short_by: int = 0
    subject: str = ""  # what refused: an envelope, a domain, ...
    limit: int = 0
    used: int = 0
    trace: tuple[CoverStep, ...] = ()
    time_may_help: bool = False
    elsewhere: tuple[EnvelopeKey, ...] = ()  # envelopes tried without success in other locations

    @property
    def payers_asked(self) -> set[EnvelopeKey]:
        return {*self.elsewhere, *(step.envelope for step in self.trace)}

    @property
    def essence(self) -> tuple[str, str]:
        """Return what is compared to decide whether a refusal is news for the user.

        A new count is no news, nor is another reason why no GPUs are free.
        """
        return ("room", "") if self.reason.is_about_room else (str(self.reason), self.remedy)

    @property
    def says(self) -> str:
        where = f" ({self.subject})" if self.subject else ""
        return f"{self.reason}{where}: {self.remedy}"


class PodPlace(Record):
    """One pod, or one spare, on one node."""

    group: int
    index: int
    node: str
    spare: bool = False
    gpus: int = 0
    on_spare: tuple[int, ...] = ()  # for a filler: the slots of another run's spare that it uses


class Packed(Record):
    """Places for all groups of a request."""

    places: tuple[PodPlace, ...]  # in group order, active pods of a group before its spares
    left_over: tuple[tuple[str, int], ...] = ()  # (domain, GPUs free afterwards)
    plan_hash: str = ""

    @property
    def gpus_by_node(self) -> tuple[tuple[str, int], ...]:
        by_node: dict[str, int] = {}
        for each in self.places:
            by_node[each.node] = by_node.get(each.node, 0) + each.gpus
        return tuple(sorted(by_node.items()))


class Admitted(Record):
    """A run or part of it that is funded and placed: the payers in each location, and the
    places."""

    covered: tuple[tuple[tuple[str, str], Covered], ...]  # ((region, cluster), cover of its part)
    packed: Packed
    # trace of the location tried first, if another one was chosen
    first_trace: tuple[CoverStep, ...] = ()

    @property
    def trace(self) -> tuple[CoverStep, ...]:
        """Return the trace of the search for payers in the location that was tried first."""
        return self.first_trace or self.covered[0][1].trace

    @property
    def fills(self) -> bool:
        """Return whether a pod uses another run's spare."""
        return any(pod.on_spare for pod in self.packed.places)
