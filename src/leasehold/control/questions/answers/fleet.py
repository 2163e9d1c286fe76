"""Answers about machines: `fleet`, and `attention` for operators."""

from leasehold.control.questions.answers.shape import Answer


class FlavorRow(Answer):
    """The GPUs of one flavor by use; `paid` to `broken` add up to `gpus`."""

    flavor: str
    nodes: int
    gpus: int
    paid: int  # used by pods of runs that are paid for
    spare: int  # idle spares
    filler: int  # spares used by an opportunistic run
    foreign: int  # used by pods that belong to no Run
    idle: int
    closed: int  # free, on a node that is cordoned, drained or tainted
    broken: int  # free, on a node that is not ready or cannot be used


class HolderRow(Answer):
    """The leases of one run with the same role and payer."""

    run: str
    owner: str
    payer: str
    payer_owner: str
    relation: str
    role: str


class NodeRow(Answer):
    """One node. `cells` has a number per slot: 0 free, -1 foreign pod, otherwise the position in
    `holders`, counted from 1."""

    node: str
    flavor: str
    domain: str
    gpus: int
    state: str  # Ready Cordoned Draining Tainted NotReady Fenced Unusable Past
    says: str
    cells: list[int]


class FleetAnswer(Answer):
    at: str | None  # null: now; for the past, states of nodes are unknown
    earliest: str | None  # start of the first known lease
    total: FlavorRow  # over all flavors; its flavor is empty
    flavors: list[FlavorRow]
    holders: list[HolderRow]
    nodes: list[NodeRow]


class AttentionRow(Answer):
    kind: str  # Node Budget Run Reservation
    subject: str
    reason: str
    says: str
    remedy: str
    runbook: str  # section of the runbook; "" if there is none
    since: str | None


class AttentionAnswer(Answer):
    items: list[AttentionRow]
