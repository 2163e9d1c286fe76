"""Worlds for the benchmarks: a fleet, a four-level tree of owners, and leases that fill it.

Everything random comes from a fixed seed, so that every run of a benchmark sees the same World.
"""

from random import Random

from leasehold.core.facts import (
    Budget,
    Envelope,
    Funding,
    Lease,
    Malleable,
    Node,
    Opened,
    Relation,
    Role,
    Run,
    RunSpec,
)
from leasehold.core.ledger.head import Head
from leasehold.core.policy import Policy
from leasehold.core.units import HOUR, Instant
from leasehold.core.world.world import World

FLAVOR = "H100-80GB"
NOW: Instant = 1_767_225_600_000
GPUS_PER_NODE = 8
NODES_PER_DOMAIN = 20
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
WEIGHTS = (14, 12, 12, 20, 15, 12, 8, 5, 3, 1)  # mean about 32 GPUs


def empty_world(nodes: int) -> World:
    """Return a World without leases: domains of twenty nodes at eight locations, and 2,000
    envelopes of 1,000 owners."""
    world = World(Policy())
    world.head = Head(seq=1, instant=NOW - 1)
    for index in range(nodes):
        domain = index // NODES_PER_DOMAIN
        place = domain % 8
        world.put_node(
            Node(
                name=f"n{index:05d}",
                flavor=FLAVOR,
                region=f"r{place // 2}",
                cluster=f"c{place % 2}",
                fabric=f"d{domain:03d}",
                gpus=GPUS_PER_NODE,
            )
        )
    for owner in owners():
        name = owner.replace(":", "-")
        head, colon, _ = owner.rpartition(":")
        envelopes = tuple(
            Envelope(
                key=f"{name}/{name}/{part}",
                owner=owner,
                flavor=FLAVOR,
                concurrency=200 if colon else 2_000,
                max_gpu_ms=None if part == "open" else 100_000 * HOUR,
            )
            for part in ("metered", "open")
        )
        world.put_budget(
            Budget(
                namespace=name,
                name=name,
                owner=owner,
                parents=(head,) if colon else (),
                envelopes=envelopes,
                wire_spec=b'{"owner":"' + owner.encode() + b'"}',
            )
        )
    return world


def owners() -> list[str]:
    """Return 1,000 owners: one root, nine divisions, ninety departments, nine hundred teams."""
    found = ["org"]
    for division in range(9):
        found.append(f"org:v{division}")
        for department in range(10):
            found.append(f"org:v{division}:p{department}")
            found.extend(f"org:v{division}:p{department}:t{team}" for team in range(10))
    return found


def make_run(
    index: int, owner: str, gpus: int, *, max_duration: int | None = None, elastic: bool = False
) -> Run:
    name = owner.replace(":", "-")
    spec = RunSpec(
        owner=owner,
        flavor=FLAVOR,
        total_gpus=gpus,
        group_gpus=min(gpus, 32),
        gpus_per_pod=min(gpus, GPUS_PER_NODE),
        max_duration=max_duration,
        malleable=Malleable(min_gpus=gpus // 2, max_gpus=gpus, step_gpus=gpus // 2,
                            desired_gpus=gpus) if elastic else None,
        funding=Funding(),
    )  # fmt: skip
    return Run(namespace=name, name=f"run-{index}", uid=f"u{index}", created=NOW, spec=spec)


def fill(world: World, *, leases: int, of_each_ten: int, limit: int | None = None) -> None:
    """Open `leases` leases of one GPU each. They use only the first `of_each_ten` of every ten
    nodes. `limit`: the longest `maxDuration` of the runs; None: they have none."""
    random = Random(1)
    teams = [owner for owner in owners() if owner.count(":") == 3]
    nodes = [
        name for index, name in enumerate(sorted(world.fleet.nodes)) if index % 10 < of_each_ten
    ]
    batch = 2
    for index in range(leases):
        node = nodes[index // GPUS_PER_NODE]
        owner = teams[index % len(teams)]
        name = owner.replace(":", "-")
        run = make_run(1_000_000 + index, owner, 1, max_duration=limit and random.randrange(
            HOUR, limit))  # fmt: skip
        world.put_run(run)
        world.fold_open(
            Lease(
                name=f"{run.name}-{batch}-{index}",
                owner=owner,
                namespace=name,
                run=run.name,
                uid=run.uid,
                attempt=1,
                group=0,
                index=0,
                node=node,
                slots=(index % GPUS_PER_NODE,),
                role=Role.ACTIVE,
                start=NOW - 1,
                payer=f"{name}/{name}/open",
                payer_owner=owner,
                relation=Relation.OWNED,
                reason=Opened.START,
                batch=batch,
                pod=f"{run.name}-p",
            )
        )
    world.work.runs.clear()
    world.work.take_budgets()


def mixed_runs(count: int, seed: int = 7) -> list[Run]:
    random = Random(seed)
    teams = [owner for owner in owners() if owner.count(":") == 3]
    sizes = random.choices(SIZES, WEIGHTS, k=count)
    return [make_run(index, random.choice(teams), gpus) for index, gpus in enumerate(sizes)]
