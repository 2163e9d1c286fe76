"""fill: opportunistic runs on the spares of others, group by group if they must."""

import pytest
from msgspec.structs import replace
from tests.properties.worlds import (
    NOW,
    a_budget,
    a_lease,
    a_node,
    a_run,
    a_wish,
    a_world,
    an_envelope,
)

from leasehold.core.facts import Role
from leasehold.core.fill import fill
from leasehold.core.verdicts import Admitted, Refusal, Refused
from leasehold.core.world import World


def spares_on(*rows: tuple[str, str, int]) -> World:
    """Nodes (name, fabric) of four GPUs with a spare of so many on them, and money for eight."""
    world = a_world(
        [a_node(name, fabric, gpus=4) for name, fabric, _ in rows],
        [a_budget("t"), a_budget("z", an_envelope("n/z/e", "z", 8))],
    )
    holder = a_run("holder")
    world.put_run(holder)
    for index, (name, _, gpus) in enumerate(rows):
        lease = a_lease(holder, name, range(gpus), batch=1, index=index, pod=index, role=Role.SPARE)
        world.fold_open(lease)
    return world


def filled(world: World, *, groups: int, gpus: int, spread: bool = True) -> Admitted | Refused:
    run = a_run("new", "z", groups=groups, group_gpus=gpus, pod_gpus=gpus, spread=spread)
    world.put_run(run)
    return fill(world, a_wish(world, run), now=NOW)


A4, B2, B4 = ("a0", "a", 4), ("b0", "b", 2), ("b1", "b", 4)
# spares          groups  GPUs  spread   nodes, or why not
FILLS = [
    ((A4,), 2, 2, True, ["a0", "a0"]),
    ((A4, B2), 1, 2, True, ["b0"]),
    ((A4, B2), 3, 2, True, ["b0", "a0", "a0"]),
    ((A4, B2), 3, 2, False, Refusal.CAPACITY),
    ((A4, B4), 2, 4, True, ["a0", "b1"]),
    ((A4, B2), 2, 4, True, Refusal.CAPACITY),
    ((A4, B2, B4), 3, 4, True, Refusal.CONCURRENCY),
]


@pytest.mark.parametrize(("rows", "groups", "gpus", "spread", "expected"), FILLS)
def test_fillers_take_the_tightest_spares(
    rows: tuple[tuple[str, str, int], ...],
    groups: int,
    gpus: int,
    spread: bool,
    expected: list[str] | Refusal,
) -> None:
    answer = filled(spares_on(*rows), groups=groups, gpus=gpus, spread=spread)
    if isinstance(answer, Admitted):
        assert answer.fills
        assert [each.node for each in answer.packed.places] == expected
    else:
        assert answer.reason is expected


def test_a_node_without_room_for_another_pod_takes_no_filler() -> None:
    world = spares_on(A4)
    world.put_node(replace(a_node("a0", gpus=4), pods_max=1))
    refused = filled(world, groups=1, gpus=2)
    assert isinstance(refused, Refused)
    assert refused.reason is Refusal.CAPACITY
