"""fill: opportunistic runs on the spares of other runs, group by group if necessary."""

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

from leasehold.core.admission.admit import as_found_by
from leasehold.core.admission.fill import fill
from leasehold.core.calendar.entries import Calendar, Entry
from leasehold.core.facts import Closed, ClosureReason, Ending, Role
from leasehold.core.units import HOUR, SECOND
from leasehold.core.verdicts import Admitted, Refusal, Refused
from leasehold.core.world.world import World


def spares_on(*rows: tuple[str, str, int]) -> World:
    """Return nodes (name, fabric, GPUs), each full of one spare, and a Budget for eight GPUs."""
    world = a_world(
        [a_node(name, fabric, gpus=gpus) for name, fabric, gpus in rows],
        [a_budget("t"), a_budget("z", an_envelope("n/z/e", "z", 8))],
    )
    holder = a_run("holder")
    world.put_run(holder)
    for index, (name, _, gpus) in enumerate(rows):
        lease = a_lease(holder, name, range(gpus), batch=1, index=index, pod=index, role=Role.SPARE)
        world.fold_open(lease)
    return world


def filled(
    world: World,
    *,
    groups: int,
    gpus: int,
    pods: int = 1,
    spread: bool = True,
    calendar: Calendar | None = None,
    span: int | None = None,
) -> Admitted | Refused:
    run = a_run("new", "z", groups=groups, group_gpus=pods * gpus, pod_gpus=gpus, spread=spread)
    world.put_run(run)
    request, calendar = replace(a_wish(world, run), span=span), calendar or Calendar()
    with world.what_if.opened():
        as_found_by(world, request, calendar, start=NOW)
        return fill(world, request, calendar, now=NOW)


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


def test_filler_pods_use_free_gpus_and_then_lowest_slots_of_a_spare() -> None:
    world = spares_on(A4)
    world.put_node(a_node("a1", "a", gpus=2))
    answer = filled(world, groups=1, gpus=2, pods=3)
    assert isinstance(answer, Admitted)
    seats = [(each.node, each.on_spare) for each in answer.packed.places]
    assert seats == [("a1", ()), ("a0", (0, 1)), ("a0", (2, 3))]


def test_no_filler_is_placed_on_a_spare_that_an_earlier_runs_plan_needs() -> None:
    """A filler has 30 s to stop at its limit, and must be gone when the plan begins (F2, Q8)."""
    world = spares_on(A4)
    ahead = Calendar()
    ahead.enter("ahead", [Entry(uid="ahead", node="a0", gpus=4, start=NOW + HOUR)])
    refused = filled(world, groups=1, gpus=4, calendar=ahead)
    assert isinstance(refused, Refused)
    short = HOUR - 30 * SECOND
    assert isinstance(filled(world, groups=1, gpus=4, calendar=ahead, span=short), Admitted)
    assert isinstance(filled(world, groups=1, gpus=4, calendar=ahead, span=short + 1), Refused)


def test_no_filler_is_placed_on_a_spare_that_is_ending() -> None:
    world = spares_on(A4)
    world.fold_ending(
        "holder-1-0",
        Ending(why=ClosureReason(reason=Closed.DROP_SPARE), deadline=NOW, batch=2, at=NOW),
    )
    assert isinstance(filled(world, groups=1, gpus=4), Refused)
