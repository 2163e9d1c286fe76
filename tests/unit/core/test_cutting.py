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
    occupy,
)

from leasehold.core.decisions.calendar import Calendar
from leasehold.core.decisions.odds import preview
from leasehold.core.decisions.resolve import resolve
from leasehold.core.decisions.swap import swap
from leasehold.core.facts import Closed, Closure, Role, Why
from leasehold.core.policy import Policy
from leasehold.core.units import HOUR
from leasehold.core.verdicts import Refusal, Refused
from leasehold.core.world.world import World


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
    assert answer.remedy.startswith("even if everything that may be cut were cut")
