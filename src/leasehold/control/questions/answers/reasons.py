"""Answers that give reasons: `plan`, `cover`, `explain`."""

from leasehold.control.questions.answers.money import PaidBy
from leasehold.control.questions.answers.runs import Chance, ReservationRow
from leasehold.control.questions.answers.shape import Answer


class StepRow(Answer):
    """One envelope that was asked to pay, and what it gave."""

    envelope: str
    relation: str
    taken: int
    verdict: str
    held_back: str
    limit: int
    used: int


class WalkStep(StepRow):
    says: str


class WalkRow(Answer):
    place: str
    covered: bool
    reason: str
    remedy: str
    short_by: int
    steps: list[WalkStep]


class CoverAnswer(Answer):
    run: str
    owner: str
    when: str
    walks: list[WalkRow]


class PlaceRow(Answer):
    group: int | None
    node: str
    domain: str
    gpus: int
    spare: bool


class PlanPayer(Answer):
    envelope: str
    payer_owner: str
    relation: str
    gpus: int | None


class ShrunkRun(Answer):
    run: str
    groups: list[int]


class PlannedCuts(Answer):
    spares: int
    shrunk: list[ShrunkRun]
    lottery: int
    domains: list[str]


def no_cuts() -> PlannedCuts:
    return PlannedCuts(spares=0, shrunk=[], lottery=0, domains=[])


class PlanAnswer(Answer):
    run: str
    owner: str
    verdict: str
    reason: str
    sentences: list[str]
    start: str | None
    confidence: str
    deficit: int
    payers: list[PlanPayer]
    places: list[PlaceRow]
    cuts: PlannedCuts
    odds: list[Chance]
    remedies: list[str]
    walk: list[WalkStep]
    notes: list[str]


class RefusalRow(Answer):
    reason: str
    subject: str
    asked: int
    short_by: int
    time_may_help: bool
    remedy: str


class OwnerBundles(Answer):
    owner: str
    bundles: int


class DrawRow(Answer):
    owner: str
    bundle: str
    gpus: int


class CutRow(Answer):
    at: str | None
    gpus: int
    reasons: list[str]
    groups: list[int]
    attempt: int
    leases: list[str]
    resolution: str
    cause: str
    subject: str
    beneficiary: str
    deficit: int
    odds: int | None
    seed: str
    conflict_set: list[OwnerBundles]
    draws: list[DrawRow]
    sentences: list[str]


class AttemptRow(Answer):
    group: int | None
    attempt: int
    started: str | None
    ended: str | None
    outcome: str
    cause: str


class ExplainAnswer(Answer):
    run: str
    owner: str
    phase: str
    reason: str
    message: str
    sentences: list[str]
    refusal: RefusalRow | None
    reservation: ReservationRow | None
    payers: list[PaidBy]
    walk: list[WalkStep]
    places: list[PlaceRow]
    cuts: list[CutRow]
    attempts: list[AttemptRow]
    remedies: list[str]
