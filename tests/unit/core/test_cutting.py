"""Preemption that would not help, bundles and overdrafts; which spare replaces a lost pod."""

from tests.properties.worlds import (
    NOW,
    a_budget,
    a_lease,
    a_node,
    a_run,
    a_site,
    a_wish,
    a_world,
    an_envelope,
    occupy,
)

from leasehold.core.calendar.entries import Calendar
from leasehold.core.facts import Closed, Closure, ClosureReason, Gang, Role
from leasehold.core.placement.swap import swap
from leasehold.core.policy import Policy
from leasehold.core.preemption.odds import preview
from leasehold.core.preemption.overdraft import cut_overdraft, excesses
from leasehold.core.preemption.resolve import resolve
from leasehold.core.preemption.victims import Scope
from leasehold.core.units import HOUR
from leasehold.core.verdicts import Refusal, Refused
from leasehold.core.world.world import World

OLD = NOW - 2 * HOUR  # old enough not to be protected any more


def a_full_world(runs: int, *, policy: Policy | None = None) -> World:
    """Return a node of eight GPUs with `runs` runs of one GPU.

    Each run has its own owner and is no longer protected.
    """
    owners = [f"t{index}" for index in range(runs)]
    world = a_world([a_node("n0")], [a_budget(each) for each in (*owners, "z")], policy=policy)
    for index, owner in enumerate(owners):
        run = a_run(f"r{index}", owner, group_gpus=1, pod_gpus=1)
        world.put_run(run)
        world.fold_open(a_lease(run, "n0", [index], batch=1, index=index, start=NOW - 2 * HOUR))
    return world


def test_odds_are_100_percent_when_every_run_must_be_preempted() -> None:
    world = a_full_world(8, policy=Policy(odds_seeds=10))
    run = a_run("new", "z", group_gpus=8, pod_gpus=8)
    world.put_run(run)
    request = a_wish(world, run)
    site = a_site(world, request)
    assert site is not None
    found = preview(world, request, Calendar(), site, at=NOW, now=NOW, may_sample=lambda: True)
    assert found.odds == tuple((f"n/r{index}", 100) for index in range(8))


def test_lost_pod_is_swapped_to_the_first_spare_of_its_size() -> None:
    world = a_world([a_node("n0"), a_node("n1"), a_node("n2")], [a_budget("t")])
    run = a_run("r", group_gpus=4, spares=6)
    world.put_run(run)
    lost = a_lease(run, "n0", range(4), batch=1, index=0)
    small = a_lease(run, "n1", range(2), batch=1, index=1, pod=0, role=Role.SPARE)
    large = a_lease(run, "n2", range(4), batch=1, index=2, pod=1, role=Role.SPARE)
    for lease in (lost, small, large):
        world.fold_open(lease)
    found = swap(world, [[lost]])
    assert found is not None
    assert [(each.node, each.spares) for each in found] == [("n2", (large,))]


def test_group_that_protected_run_may_lose_counts_in_only_one_domain() -> None:
    """The elastic run may lose one of two groups; with it gone, either domain alone would fit."""
    world = a_world([a_node("n0", "a"), a_node("n1", "b")], [a_budget(each) for each in "tuz"])
    elastic = a_run("elastic", groups=2, minimum=4)
    small = a_run("small", "u", group_gpus=2, pod_gpus=2)
    wide = a_run("wide", "z", groups=2)
    for run in (elastic, small, wide):
        world.put_run(run)
    for group, node in enumerate(("n0", "n1")):
        lease = a_lease(elastic, node, range(4), batch=1, index=group, group=group, start=NOW)
        world.fold_open(lease)
    world.fold_open(a_lease(small, "n0", (4, 5), batch=1, index=2))
    occupy(world, "n0", 2)
    occupy(world, "n1", 4)
    request = a_wish(world, wide)
    assert a_site(world, request) is None
    unprotected = NOW + 2 * HOUR
    assert a_site(world, request, at=unprotected) is not None


def test_nothing_is_preempted_when_preempting_everything_is_not_enough() -> None:
    """The site was planned before the run that is now protected started (R6)."""
    world = a_full_world(8)
    run = a_run("new", "z", group_gpus=8, pod_gpus=8)
    world.put_run(run)
    request = a_wish(world, run)
    site = a_site(world, request)
    assert site is not None
    [old] = world.open_by_run["uid-r0"]
    lease = world.leases[old]
    why = Closure(why=ClosureReason(reason=Closed.COMPLETED), at=NOW, batch=2)
    world.fold_close(old, why)
    late = a_run("late", "t0", group_gpus=1, pod_gpus=1)
    world.put_run(late)
    world.fold_open(a_lease(late, "n0", lease.slots, batch=3, index=0, start=NOW))
    answer = resolve(world, request, Calendar(), site, now=NOW, seeder=lambda: "00")
    assert isinstance(answer, Refused)
    assert answer.reason is Refusal.CAPACITY
    assert answer.remedy.startswith("the run would not fit even if all runs")


def a_sweep(groups: int, *, minimum: int | None = None) -> World:
    """Return a sweep of `groups` groups of two GPUs: the last on n1, the others on n0."""
    world = a_world([a_node("n0", "a"), a_node("n1", "b")], [a_budget("t")])
    run = a_run("sweep", groups=groups, group_gpus=2, pod_gpus=2, minimum=minimum, gang=Gang.GROUP)
    world.put_run(run)
    for group in range(groups):
        node, first = ("n1", 0) if group == groups - 1 else ("n0", 2 * group)
        slots = range(first, first + 2)
        world.fold_open(a_lease(run, node, slots, batch=1, index=group, group=group, start=OLD))
    return world


def bundles_on(world: World, node: str) -> list[tuple[int | None, int]]:
    leases = [each for each in world.leases.values() if each.node == node]
    scope = Scope(world, leases, lambda: False, free=lambda _: None, restore=lambda _: None)
    found = scope.conflict_set(now=NOW, beneficiary="uid-new")
    return [(bundle.group, bundle.gpus) for pairs in found.values() for bundle, _ in pairs]


def test_sweep_above_minimum_has_one_bundle_per_group_in_scope() -> None:
    """The sweep has three groups; without a minimum, one group is enough (R4)."""
    assert bundles_on(a_sweep(3), "n0") == [(0, 2), (1, 2)]
    assert bundles_on(a_sweep(3, minimum=4), "n0") == [(0, 2), (1, 2)]


def test_sweep_at_minimum_is_one_bundle_wherever_its_groups_are() -> None:
    assert bundles_on(a_sweep(3, minimum=6), "n0") == [(None, 6)]
    assert bundles_on(a_sweep(1), "n1") == [(None, 2)]


def test_overdraft_preempts_even_a_protected_run() -> None:
    world = a_world([a_node("n0")], [a_budget("t", an_envelope("n/t/e", "t", 2))])
    run = a_run("young")
    world.put_run(run)
    world.fold_open(a_lease(run, "n0", range(4), batch=1, index=0, start=NOW))
    [excess] = excesses(world, "n/t/e", NOW)
    cuts = cut_overdraft(world, excess, seeder=lambda: "5e" * 32, now=NOW)
    assert cuts is not None
    assert [cut.run for cut in cuts.kept] == ["n/young"]
