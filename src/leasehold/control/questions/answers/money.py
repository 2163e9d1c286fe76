"""Answers about money: `who-pays`, `sponsors`, and the three forms of `budgets`."""

import msgspec

from leasehold.control.questions.answers.shape import Answer, GpuAmount


class PaidShare(Answer):
    gpus: int
    gpu_ms: int
    gpu_hours: str


class PaidShares(Answer):
    owned: PaidShare
    shared: PaidShare
    borrowed: PaidShare


class PaidBy(Answer):
    """What one envelope pays for a run now, and what it has paid so far."""

    envelope: str
    payer_owner: str
    relation: str
    gpus: int
    gpu_ms: int
    gpu_hours: str


class WhoPaysAnswer(Answer):
    run: str
    owner: str
    phase: str
    gpus: int
    gpu_ms: int
    gpu_hours: str
    shares: PaidShares
    payers: list[PaidBy]


class SponsorEnvelope(Answer):
    envelope: str
    lends: bool
    says: str


class SponsorRow(Answer):
    owner: str
    named: bool
    gpus: int
    gpu_ms: int
    gpu_hours: str
    envelopes: list[SponsorEnvelope]


class SponsorsAnswer(Answer, kw_only=True):
    run: str
    owner: str
    allow_borrow: bool
    max_borrow_gpus: int | None = msgspec.field(name="maxBorrowGPUs")
    items: list[SponsorRow]


class LentTo(Answer):
    owner: str
    gpus: int


class EnvelopeUsage(Answer):
    envelope: str
    owner: str
    flavor: str
    region: str
    cluster: str
    concurrency: int
    used: int
    shared: int
    spare: int
    lent: int
    lent_to: list[LentTo]
    free: int
    claimed: int
    overdrawn: int
    overdrawn_since: str | None
    state: str
    opens: str | None
    until: str | None


class OwnerUsage(Answer):
    """The GPUs that an owner's runs hold, by relation to the payer, and the GPUs that its envelopes
    lend."""

    owner: str
    gpus: int
    owned: int
    shared: int
    borrowed: int
    lent: int


class UsageAnswer(Answer, tag_field="form", tag="usage"):
    items: list[EnvelopeUsage]
    owners: list[OwnerUsage]


class EnvelopeBalance(Answer):
    envelope: str
    owner: str
    flavor: str
    region: str
    cluster: str
    limit: GpuAmount | None
    used: GpuAmount
    committed: GpuAmount
    left: GpuAmount | None
    lending_limit: GpuAmount | None
    lent: GpuAmount
    opens: str | None
    until: str | None
    pays_until: str | None


class BalanceAnswer(Answer, tag_field="form", tag="balance"):
    items: list[EnvelopeBalance]


class BurnPoint(Answer):
    """The GPU-time used from the start of the window to this instant."""

    at: str | None
    gpu_ms: int
    gpu_hours: str


class BurnRow(Answer):
    """The use of one envelope over time.

    Points are exact from the first one on; use before it is contained in it as one sum.
    """

    envelope: str
    points: list[BurnPoint]


class BurnAnswer(Answer):
    items: list[BurnRow]  # envelopes with a limit of GPU-hours and an end


class FamilySum(Answer):
    concurrency: int
    used: int
    lent: int
    gpu_ms: int
    gpu_hours: str


class FamilyRow(Answer):
    owner: str
    depth: int
    parents: list[str]
    envelopes: int
    own: FamilySum
    below: FamilySum  # of the owner and all its descendants


class TreeAnswer(Answer, tag_field="form", tag="tree"):
    items: list[FamilyRow]
