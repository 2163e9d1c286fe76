"""Answers about runs and when they start: `runs`, `reservations`."""

from leasehold.control.questions.answers.shape import Answer


class RunWidth(Answer):
    """Widths in GPUs: what the manifest allows, and what the run has."""

    min: int
    max: int
    desired: int
    allocated: int
    spares: int
    pending: int


class RunFunding(Answer):
    """GPUs that the run holds, by relation to the payer."""

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
    total: int  # matching runs; `limit` shortens only `items`
    items: list[RunRow]


class Release(Answer):
    """A lease that ends before a planned start, and when it ends."""

    lease: str
    at: str | None


class Chance(Answer):
    """The chance of a run to be drawn, in percent."""

    run: str
    percent: int


class PassedBy(Answer):
    """A run behind in the queue that started after the reservation was announced."""

    run: str
    gpus: int
    started: str | None
    ends: str | None  # at the latest; null if it has no limit
    says: str  # why it delays nothing ahead


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
    submitted: str | None  # the queue is ordered by it
    passed_by: list[PassedBy]  # the newest ones


class ReservationsAnswer(Answer):
    items: list[ReservationRow]


class WidthPoint(Answer):
    """The width from this instant until the next point."""

    at: str | None
    active: int
    spare: int


class WidthsAnswer(Answer):
    run: str
    until: str | None
    items: list[WidthPoint]
