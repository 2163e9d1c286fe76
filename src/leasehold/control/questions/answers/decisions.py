"""Answers about what was cut: `resolutions`."""

from leasehold.control.questions.answers.reasons import DrawRow
from leasehold.control.questions.answers.shape import Answer


class GivenUp(Answer):
    """A group that a run gave up, since it was above its minimum."""

    run: str
    group: int
    gpus: int


class GivenBack(Answer):
    """Taken first and not needed in the end."""

    kind: str
    name: str
    gpus: int


class SpareDropped(Answer):
    lease: str
    gpus: int


class DomainLoss(Answer):
    """GPUs that making room in one domain would have cost, by how they would have been taken."""

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
    runs: list[str]  # whose leases those were, as far as they are known
    record: str  # the canonical JSON of its spec, when one is asked for; otherwise empty
    digest: str  # and its SHA-256, which the batch says


class ResolutionsAnswer(Answer):
    total: int
    items: list[ResolutionRow]  # the newest first
