"""Where cutting is no answer, and which spare takes over from which pod."""

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

from leasehold.core.decisions.calendar import Calendar
from leasehold.core.decisions.cuts import Scope
from leasehold.core.decisions.odds import preview
from leasehold.core.decisions.overdraft import cut_overdraft, excesses
from leasehold.core.decisions.resolve import resolve
from leasehold.core.decisions.swap import swap
from leasehold.core.facts import Closed, Closure, Gang, Role, Why
from leasehold.core.policy import Policy
from leasehold.core.units import HOUR
from leasehold.core.verdicts import Refusal, Refused
from leasehold.core.world.world import World

OLD = NOW - 2 * HOUR  # so old that nothing protects it any more


def a_full_world(runs: int, *, policy: Policy | None = None) -> World:
    """A node of eight GPUs, so many of them held by runs of one GPU, each of its own owner, that
    are protected no longer."""
    owners = [f"t{index}" for index in range(runs)]
    world = a_world([a_node("n0")], [a_budget(each) for each in (*owners, "z")], policy=policy)
    for index, owner in enumerate(owners):
        run = a_run(f"r{index}", owner, group_gpus=1, pod_gpus=1)
        world.put_run(run)
        world.fold_open(a_lease(run, "n0", [index], batch=1, index=index, start=NOW - 2 * HOUR))
    return world


def test_when_everybody_must_go_everybody_is_drawn_for_certain() -> None:
    world = a_full_world(8, policy=Policy(odds_seeds=10))
    run = a_run("new", "z", group_gpus=8, pod_gpus=8)
    world.put_run(run)
    wish = a_wish(world, run)
    site = a_site(world, wish)
    assert site is not None
    found = preview(world, wish, Calendar(), site, at=NOW, now=NOW, may_sample=lambda: True)
    assert found.odds == tuple((f"n/r{index}", 100) for index in range(8))


def test_a_lost_pod_goes_to_the_first_spare_of_its_size() -> None:
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


def test_what_a_protected_run_can_give_up_once_is_not_counted_in_two_domains() -> None:
    """It may lose one group of two, and each domain alone would fit with its group gone."""
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
    wish = a_wish(world, wide)
    assert a_site(world, wish) is None
    unprotected = NOW + 2 * HOUR
    assert a_site(world, wish, at=unprotected) is not None


def test_when_cutting_all_is_not_enough_nobody_is_cut() -> None:
    """The site was planned when the run that is protected now was not there (R6)."""
    world = a_full_world(8)
    run = a_run("new", "z", group_gpus=8, pod_gpus=8)
    world.put_run(run)
    wish = a_wish(world, run)
    site = a_site(world, wish)
    assert site is not None
    [old] = world.open_by_run["uid-r0"]
    lease = world.leases[old]
    why = Closure(why=Why(reason=Closed.COMPLETED), at=NOW, batch=2)
    world.fold_close(old, why)
    late = a_run("late", "t0", group_gpus=1, pod_gpus=1)
    world.put_run(late)
    world.fold_open(a_lease(late, "n0", lease.slots, batch=3, index=0, start=NOW))
    answer = resolve(world, wish, Calendar(), site, now=NOW, seeder=lambda: "00")
    assert isinstance(answer, Refused)
    assert answer.reason is Refusal.CAPACITY
    assert answer.remedy.startswith("the run would not fit even if all runs")


def a_sweep(groups: int, *, minimum: int | None = None) -> World:
    """One node with so many groups of two GPUs, and one more of them on another node."""
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
    found = scope.conflict_set(now=NOW, but="uid-new")
    return [(bundle.group, bundle.gpus) for pairs in found.values() for bundle, _ in pairs]


def test_each_group_of_a_sweep_in_the_scope_is_a_bundle_above_its_minimum() -> None:
    """Three groups; without a minimum of its own one of them is enough (R4)."""
    assert bundles_on(a_sweep(3), "n0") == [(0, 2), (1, 2)]
    assert bundles_on(a_sweep(3, minimum=4), "n0") == [(0, 2), (1, 2)]


def test_a_sweep_at_its_minimum_is_one_bundle_wherever_its_groups_are() -> None:
    assert bundles_on(a_sweep(3, minimum=6), "n0") == [(None, 6)]
    assert bundles_on(a_sweep(1), "n1") == [(None, 2)]


def test_an_overdraft_is_settled_at_the_cost_of_a_protected_run_too() -> None:
    world = a_world([a_node("n0")], [a_budget("t", an_envelope("n/t/e", "t", 2))])
    run = a_run("young")
    world.put_run(run)
    world.fold_open(a_lease(run, "n0", range(4), batch=1, index=0, start=NOW))
    [excess] = excesses(world, "n/t/e", NOW)
    cuts = cut_overdraft(world, excess, seeder=lambda: "5e" * 32, now=NOW)
    assert cuts is not None
    assert [cut.run for cut in cuts.kept] == ["n/young"]
