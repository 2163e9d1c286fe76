"""Measures two decisions on a full fleet: a preemption for 512 GPUs, and the planning of many
runs."""

from time import process_time

from bench.worlds import NOW, empty_world, fill, make_run, mixed_runs, owners
from leasehold.control.scheduling.plans import enter, plan_for
from leasehold.control.scheduling.queue_pass import QueuePass
from leasehold.control.scheduling.requests import start_request_for
from leasehold.control.turn import Turn
from leasehold.core.admission.admit import admit
from leasehold.core.calendar.entries import Calendar
from leasehold.core.facts import Lease, Opened, Relation, Role
from leasehold.core.preemption.resolve import PlannedSite, Resolved, resolve
from leasehold.core.preemption.site import choose_site
from leasehold.core.units import HOUR
from leasehold.core.verdicts import Refused
from leasehold.core.world.world import World


def full_world(nodes: int, *, limit: int | None) -> World:
    """Return a World in which every GPU is leased. Six of every ten nodes have one-GPU runs; each
    of the others has one run of eight GPUs."""
    world = empty_world(nodes)
    fill(world, leases=nodes * 8 * 6 // 10, of_each_ten=6, limit=limit)
    teams = [owner for owner in owners() if owner.count(":") == 3]
    names = [name for index, name in enumerate(sorted(world.fleet.nodes)) if index % 10 >= 6]
    for index, node in enumerate(names):
        owner = teams[index % len(teams)]
        run = make_run(3_000_000 + index, owner, 8, max_duration=limit, elastic=False)
        world.put_run(run)
        name = owner.replace(":", "-")
        world.fold_open(
            Lease(
                name=f"{run.name}-3-{index}", owner=owner, namespace=name, run=run.name,
                uid=run.uid, attempt=1, group=0, index=0, node=node,
                slots=tuple(range(8)), role=Role.ACTIVE, start=NOW - 1,
                payer=f"{name}/{name}/open", payer_owner=owner, relation=Relation.OWNED,
                reason=Opened.START, batch=3, pod=f"{run.name}-p",
            )
        )  # fmt: skip
    world.work.runs.clear()
    world.work.take_budgets()
    return world


def resolve_512(nodes: int) -> float:
    """Return the milliseconds to choose a site for 512 GPUs on a full fleet, and to decide which
    leases are preempted there."""
    world = full_world(nodes, limit=None)
    run = make_run(9_000_001, "org", 512)
    world.put_run(run)
    request = start_request_for(world, run, tuple(range(16)))
    began = process_time()
    later = NOW + 2 * HOUR  # by then no run is protected any more
    site = choose_site(world, request, Calendar(), at=later, now=later)
    assert site is not None
    planned = PlannedSite(domains=site.domains, money=site.money)
    answer = resolve(world, request, Calendar(), planned, now=later, seeder=lambda: "5" * 64)
    spent = process_time() - began
    assert isinstance(answer, Resolved), answer
    return spent * 1000


def forecast_many(nodes: int, count: int) -> tuple[float, int]:
    """Return the seconds to plan `count` waiting runs, each after the ones before it, and how many
    of them got a known start."""
    world = full_world(nodes, limit=12 * HOUR)
    turn = Turn(world, now=NOW, key=b"k", time_trusted=True)
    walk = QueuePass(world.policy)
    planned = 0
    spent = 0.0
    for run in mixed_runs(count, seed=11):
        world.put_run(run)
        request = start_request_for(
            world, run, tuple(range(run.spec.total_gpus // run.spec.group_gpus))
        )
        began = process_time()
        refused = admit(world, request, turn.calendar, start=NOW, now=NOW)
        assert isinstance(refused, Refused), refused
        if walk.take_place(run, refused).is_planned:
            plan = plan_for(turn, request, refused, walk, is_first=True)
            assert plan is not None
            enter(turn, request, plan)
            planned += plan.known is not None
        spent += process_time() - began
    return spent, planned
