"""Leases and batches for the tests of the ledger, with a default for every field."""

from leasehold.core.facts import Lease, Opened, Relation, Role
from leasehold.core.ledger.batch import Batch, NodeFact, line
from leasehold.core.ledger.chain import GENESIS, canonical
from leasehold.core.names import Wire
from leasehold.core.objects.lease import lease_name, pod_name

T0 = 1_763_164_810_000
BUDGET = canonical(
    {
        "owner": "org:a",
        "envelopes": [
            {"name": "west", "flavor": "H100", "concurrency": 8},
            {"name": "east", "flavor": "H100", "concurrency": 8},
        ],
        "aggregateCaps": [
            {"name": "all", "flavor": "H100", "envelopes": ["west", "east"], "maxConcurrency": 12}
        ],
    }
)
FACTS = Batch(
    seq=1,
    epoch=1,
    instant=T0,
    facts_budgets=(("team/money", BUDGET),),
    facts_nodes=(
        NodeFact(name="n1", gpus=8, flavor="H100", domain="r/c/a"),
        NodeFact(name="n2", gpus=8, flavor="H100", domain="r/c/a"),
    ),
    announced=(("team/big-1", "77" * 32),),
)


def a_lease(
    batch: int,
    index: int,
    *,
    slots: tuple[int, ...] = (0, 1),
    role: Role = Role.ACTIVE,
    reason: Opened = Opened.START,
    node: str = "n1",
    run: str = "train",
    payer: str = "team/money/west",
    start: int = T0,
    pod: str | None = None,
) -> Lease:
    if pod is None:
        pod = "" if role is Role.SPARE else pod_name(run, batch, 0, 0)
    return Lease(
        name=lease_name(run, batch, index),
        owner="org:a",
        namespace="team",
        run=run,
        uid=f"uid-{run}",
        attempt=1,
        group=0,
        index=0,
        node=node,
        slots=slots,
        role=role,
        start=start,
        payer=payer,
        payer_owner="org:a",
        relation=Relation.OWNED,
        reason=reason,
        batch=batch,
        pod=pod,
    )


def lines_of(*batches: Batch) -> list[Wire]:
    """Return the exported lines of these batches, chained."""
    digest, lines = GENESIS, []
    for batch in batches:
        made = line(batch, digest)
        digest = str(made["digest"])
        lines.append(made)
    return lines
