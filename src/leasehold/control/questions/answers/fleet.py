"""Answers about machines: `fleet`, and `attention` for whoever runs them."""

from leasehold.control.questions.answers.shape import Answer


class FlavorRow(Answer):
    """GPUs of one flavor; those from `paid` to `broken` add up to `gpus`."""

    flavor: str
    nodes: int
    gpus: int
    paid: int  # somebody's pods run there under a payer
    spare: int  # stands by, paid for
    filler: int  # an opportunistic run sits on somebody's spare
    foreign: int  # taken by what is no Run
    idle: int
    closed: int  # free, on a node that is cordoned, drained or tainted
    broken: int  # free, on a node that is not there or cannot be used


class HolderRow(Answer):
    """One run's leases of one role with one payer."""

    run: str
    owner: str
    payer: str
    payer_owner: str
    relation: str
    role: str


class NodeRow(Answer):
    """`cells` has a number for each slot: 0 for nobody, -1 for what is no Run, and otherwise the
    place in `holders`, from 1 on."""

    node: str
    flavor: str
    domain: str
    gpus: int
    state: str  # Ready Cordoned Draining Tainted NotReady Fenced Unusable Past
    says: str
    cells: list[int]


class FleetAnswer(Answer):
    at: str | None  # null for now; of the past only leases are known, and no states of nodes
    earliest: str | None  # of all leases that are known
    total: FlavorRow  # of all flavors, and so of none
    flavors: list[FlavorRow]
    holders: list[HolderRow]
    nodes: list[NodeRow]


class AttentionRow(Answer):
    kind: str  # Node Budget Run Reservation
    subject: str
    reason: str
    says: str
    remedy: str
    runbook: str  # the section of the runbook; empty where there is nothing to look up
    since: str | None


class AttentionAnswer(Answer):
    items: list[AttentionRow]
