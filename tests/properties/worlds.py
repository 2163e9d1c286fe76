"""Small worlds for the properties: a few nodes, a few payers, runs with leases, built by rows.

Nothing here decides anything; it folds facts into a `World` the way the shell does, with every
field that a property leaves open filled in.
"""

from collections.abc import Iterable

from hypothesis import strategies as st

from leasehold.core.calendar.entries import Calendar
from leasehold.core.facts import (
    Aggregate,
    Budget,
    Envelope,
    Gang,
    Lease,
    Lending,
    Malleable,
    Node,
    Opened,
    Relation,
    Role,
    Run,
    RunSpec,
    Selector,
)
from leasehold.core.objects.lease import lease_name, pod_name
from leasehold.core.placement.pack import wanted
from leasehold.core.policy import Policy
from leasehold.core.preemption.resolve import PlannedSite
from leasehold.core.preemption.site import choose_site
from leasehold.core.requests import StartRequest
from leasehold.core.units import HOUR, Millis
from leasehold.core.world.world import World

FLAVOR = "H"
NOW = 100 * HOUR
KEY = b"a key for properties"
NO_LENDING = Lending()
ANYWHERE = Selector()


def a_node(name: str, fabric: str = "a", *, gpus: int = 8, cluster: str = "c") -> Node:
    return Node(name=name, flavor=FLAVOR, region="r", cluster=cluster, fabric=fabric, gpus=gpus)


def an_envelope(
    key: str,
    owner: str,
    concurrency: int = 1000,
    *,
    end: int = 1 << 62,
    max_gpu_ms: int | None = None,
    lending: Lending = NO_LENDING,
) -> Envelope:
    return Envelope(
        key=key,
        owner=owner,
        flavor=FLAVOR,
        concurrency=concurrency,
        end=end,
        max_gpu_ms=max_gpu_ms,
        lending=lending,
    )


def a_budget(
    owner: str,
    *envelopes: Envelope,
    namespace: str = "n",
    aggregates: tuple[Aggregate, ...] = (),
) -> Budget:
    """The Budget of an owner, named after it; without envelopes it has one of 1000 GPUs."""
    name = owner.replace(":", "-")
    made = envelopes or (an_envelope(f"{namespace}/{name}/e", owner),)
    return Budget(
        namespace=namespace,
        name=name,
        owner=owner,
        parents=(owner.rpartition(":")[0],) if ":" in owner else (),
        envelopes=made,
        aggregates=aggregates,
    )


def a_run(
    name: str,
    owner: str = "t",
    *,
    groups: int = 1,
    group_gpus: int = 4,
    pod_gpus: int = 4,
    spares: int = 0,
    minimum: int | None = None,
    gang: Gang = Gang.RUN,
    span: Millis | None = None,
    spread: bool = True,
    created: int = 0,
    selector: Selector = ANYWHERE,
) -> Run:
    """`minimum` is in GPUs and makes it elastic; `spares` is in GPUs per group."""
    total = groups * group_gpus
    elastic = None
    if minimum is not None:
        elastic = Malleable(
            min_gpus=minimum, max_gpus=total, step_gpus=group_gpus, desired_gpus=total
        )
    spec = RunSpec(
        owner=owner,
        flavor=FLAVOR,
        total_gpus=total,
        group_gpus=group_gpus,
        gpus_per_pod=pod_gpus,
        spread=spread,
        gang=gang,
        malleable=elastic,
        spares_per_group=spares,
        max_duration=span,
        selector=selector,
    )
    return Run(namespace="n", name=name, uid=f"uid-{name}", created=created, spec=spec)


def a_lease(
    run: Run,
    node: str,
    slots: Iterable[int],
    *,
    batch: int,
    index: int,
    group: int = 0,
    pod: int = 0,
    role: Role = Role.ACTIVE,
    payer: str = "",
    relation: Relation = Relation.OWNED,
    start: int = NOW - HOUR,
) -> Lease:
    owner = run.spec.owner
    return Lease(
        name=lease_name(run.name, batch, index),
        owner=owner,
        namespace=run.namespace,
        run=run.name,
        uid=run.uid,
        attempt=1,
        group=group,
        index=pod,
        node=node,
        slots=tuple(slots),
        role=role,
        start=start,
        payer=payer or f"n/{owner.replace(':', '-')}/e",
        payer_owner=owner,
        relation=relation,
        reason=Opened.START,
        batch=batch,
        pod="" if role is Role.SPARE else pod_name(run.name, batch, group, pod),
    )


def a_world(
    nodes: Iterable[Node], budgets: Iterable[Budget] = (), *, policy: Policy | None = None
) -> World:
    world = World(policy or Policy())
    for budget in budgets:
        world.put_budget(budget)
    for node in nodes:
        world.put_node(node)
    return world


def occupy(world: World, name: str, gpus: int) -> None:
    """GPUs of a node that somebody else's pods hold."""
    world.fleet.load(name, gpus=gpus, cpu_milli=0, memory_bytes=0, pods=1)


def a_wish(world: World, run: Run) -> StartRequest:
    """All groups of a run that has none yet."""
    groups = tuple(range(run.spec.total_gpus // run.spec.group_gpus))
    return StartRequest(run=run, want=wanted(world, run, groups), span=run.spec.max_duration)


def a_site(world: World, wish: StartRequest, *, at: int = NOW) -> PlannedSite | None:
    """The site for a start by cuts, as its reservation would have it."""
    site = choose_site(world, wish, Calendar(), at=at, now=NOW)
    return None if site is None else PlannedSite(domains=site.domains, money=site.money)


# Rows of (fabric, GPUs, GPUs that somebody else holds); the name is the row's number.
node_rows = st.lists(
    st.tuples(st.sampled_from("ab"), st.sampled_from((4, 8)), st.integers(0, 8)),
    min_size=1,
    max_size=6,
)


def fleet_of(rows: Iterable[tuple[str, int, int]]) -> World:
    """A fleet as drawn by `node_rows`, with one owner `t` that can pay for anything."""
    rows = list(rows)
    world = a_world(
        (a_node(f"n{i}", fabric, gpus=gpus) for i, (fabric, gpus, _) in enumerate(rows)),
        [a_budget("t")],
    )
    for i, (_, gpus, held) in enumerate(rows):
        if held:
            occupy(world, f"n{i}", min(gpus, held))
    return world
