"""Odds of a large lottery are drawn from many seeds, when somebody allows it."""

from tests.properties.worlds import NOW, a_budget, a_lease, a_node, a_run, a_site, a_wish, a_world

from leasehold.core.calendar.entries import Calendar
from leasehold.core.policy import Policy
from leasehold.core.preemption.odds import Preview, preview
from leasehold.core.units import HOUR
from leasehold.core.world.world import World

RUNS = 8
POLICY = Policy(odds_seeds=400)


def a_world_of_equals() -> World:
    """Eight runs of one GPU on one node, each of its own owner; one of them must go."""
    owners = [f"t{index}" for index in range(RUNS)]
    world = a_world([a_node("n0")], [a_budget(each) for each in (*owners, "z")], policy=POLICY)
    for index, owner in enumerate(owners):
        run = a_run(f"r{index}", owner, group_gpus=1, pod_gpus=1)
        world.put_run(run)
        world.fold_open(a_lease(run, "n0", [index], batch=1, index=index, start=NOW - 2 * HOUR))
    return world


def seen(world: World, *, allowed: bool) -> Preview:
    run = a_run("new", "z", group_gpus=1, pod_gpus=1)
    world.put_run(run)
    wish = a_wish(world, run)
    site = a_site(world, wish)
    assert site is not None
    return preview(world, wish, Calendar(), site, at=NOW, now=NOW, may_sample=lambda: allowed)


def test_sampled_odds_are_near_the_true_ones_and_add_up() -> None:
    odds = seen(a_world_of_equals(), allowed=True).odds
    assert odds is not None
    assert [run for run, _ in odds] == [f"n/r{index}" for index in range(RUNS)]
    assert all(abs(percent - 100 // RUNS) <= 6 for _, percent in odds)
    assert abs(sum(percent for _, percent in odds) - 100) <= RUNS // 2


def test_sampling_twice_gives_the_same_odds() -> None:
    first, second = (seen(a_world_of_equals(), allowed=True).odds for _ in range(2))
    assert first == second


def test_odds_that_are_too_dear_are_left_open() -> None:
    found = seen(a_world_of_equals(), allowed=False)
    assert found.odds is None
    assert found.left_to_lottery == 1
