"""Answers about runs and when they start: `runs`, `reservations`."""

from leasehold.control.questions.answers.shape import Answer


class RunWidth(Answer):
    """GPUs: what its manifest allows, and what it has."""

    min: int
    max: int
    desired: int
    allocated: int
    spares: int
    pending: int


class RunFunding(Answer):
    """GPUs it holds, by whose money pays for them."""

    owned: int
    shared: int
    borrowed: int


class PayerGpus(Answer):
    envelope: str
    gpus: int


class PlannedStart(Answer):
    name: str  # of the reservation
    state: str
    starts: str | None
    confidence: str


class RunRow(Answer):
    namespace: str
    name: str
    owner: str
    flavor: str
    phase: str
    reason: str
    message: str
    attempt: int
    created: str | None
    started: str | None
    ended: str | None
    width: RunWidth
    funding: RunFunding
    payers: list[PayerGpus]
    nodes: list[str]
    reservation: PlannedStart | None
    gpu_ms: int
    gpu_hours: str


class RunsAnswer(Answer):
    total: int  # of those that were asked for; `limit` cuts `items` only
    items: list[RunRow]


class Release(Answer):
    """A lease that will have ended, and when."""

    lease: str
    at: str | None


class Chance(Answer):
    """How likely a run is drawn, in whole percent."""

    run: str
    percent: int


class PassedBy(Answer):
    """A run that came later and started since the reservation was announced."""

    run: str
    gpus: int
    started: str | None
    ends: str | None  # at the latest; null if it has no limit
    says: str  # why it delays nobody


class ReservationRow(Answer):
    namespace: str
    name: str
    run: str
    state: str
    starts: str | None
    starts_in_ms: int | None
    confidence: str
    deficit: int
    reason: str
    message: str
    payers: list[str]
    domains: list[str]
    nodes: list[str]
    releases: list[Release]
    remedies: list[str]
    odds: list[Chance]
    announced: str | None
    since: str | None
    submitted: str | None  # by which the line is ordered
    passed_by: list[PassedBy]  # the newest of them


class ReservationsAnswer(Answer):
    items: list[ReservationRow]


class WidthPoint(Answer):
    """From this instant on, until the next."""

    at: str | None
    active: int
    spare: int


class WidthsAnswer(Answer):
    run: str
    until: str | None
    items: list[WidthPoint]
