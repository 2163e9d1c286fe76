"""Answers about preemptions: `resolutions`."""

from leasehold.control.questions.answers.reasons import DrawRow
from leasehold.control.questions.answers.shape import Answer


class GivenUp(Answer):
    """A group that a preemption took from a run above its minimum."""

    run: str
    group: int
    gpus: int


class GivenBack(Answer):
    """A lease, group or bundle that a preemption took first, but did not need in the end."""

    kind: str
    name: str
    gpus: int


class SpareDropped(Answer):
    lease: str
    gpus: int


class DomainLoss(Answer):
    """The GPUs that preempting in one domain would have cost: by lottery, by shrinking, of
    spares."""

    domain: str
    lottery: int
    shrink: int
    spares: int


class ResolutionRow(Answer):
    name: str
    batch: int
    at: str | None
    cause: str
    subject: str
    beneficiary: str
    flavor: str
    domains: list[str]
    envelope: str
    deficit: int
    compared: list[DomainLoss]
    spares: list[SpareDropped]
    shrunk: list[GivenUp]
    drawn: list[DrawRow]
    returned: list[GivenBack]
    victims: int  # leases
    runs: list[str]  # the runs that lost these leases, as far as known
    record: str  # canonical JSON of its spec, if a single one is asked for; otherwise ""
    digest: str  # SHA-256 of the record, which its batch states


class ResolutionsAnswer(Answer):
    total: int
    items: list[ResolutionRow]  # newest first
