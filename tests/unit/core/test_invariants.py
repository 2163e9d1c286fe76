"""Each invariant has a world that breaks it, and only what was touched is looked at."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace
from tests.properties.worlds import NOW, a_budget, a_lease, a_node, a_run, a_world, an_envelope
from tests.unit.test_lottery import a_resolution

from leasehold.core.facts import (
    Aggregate,
    Closed,
    Closure,
    ClosureReason,
    Ending,
    Funding,
    Lease,
    Lending,
    Opened,
    Relation,
    Role,
)
from leasehold.core.units import HOUR
from leasehold.core.world.invariants import Touched, check_all, check_delta
from leasehold.core.world.world import World

LENDING = Lending(allow=True, to=("*",), max_concurrency=3, max_gpu_ms=20 * HOUR)


def a_plain_world() -> World:
    """Eight GPUs of money, of which three may be lent, and a cap of six over two envelopes."""
    e, f = (an_envelope(f"n/t/{name}", "t", 8, max_gpu_ms=400 * HOUR, lending=LENDING)
            for name in "ef")  # fmt: skip
    both = Aggregate(key="n/t/all", flavor="H", members=(e.key, f.key), max_concurrency=14)
    world = a_world(
        [a_node("n0", gpus=16), a_node("n1", "b")], [a_budget("t", e, f, aggregates=(both,))]
    )
    run = a_run("r", groups=1, group_gpus=4, pod_gpus=4)
    world.put_run(replace(run, spec=replace(run.spec, funding=Funding(max_borrow_gpus=4))))
    world.put_run(a_run("other"))
    world.put_run(a_run("elastic", groups=2, minimum=8))
    return world


def a_good_lease(world: World) -> Lease:
    return a_lease(world.runs["uid-r"], "n0", range(4), batch=1, index=0)


def opened(world: World, *leases: Lease) -> list[str]:
    """The rules that opening these leases breaks."""
    for lease in leases:
        world.fold_open(lease)
    return [each.rule for each in check_delta(world, Touched(opened=leases), NOW)]


def variant(**changes: object) -> Callable[[World], list[Lease]]:
    """The good lease and a second one like it but for these fields."""

    def make(world: World) -> list[Lease]:
        good = a_good_lease(world)
        second: dict[str, object] = {"name": "r-1-1", "slots": (4, 5), "group": 0, **changes}
        return [good, replace(good, **second)]

    return make


OTHER = {"uid": "uid-other", "run": "other", "reason": Opened.GROW}
BROKEN: list[tuple[str, Callable[[World], list[Lease]]]] = [
    ("INV-SLOT-EXCLUSIVE", variant(slots=(3, 4), reason=Opened.GROW, pod="p", index=1)),
    ("INV-FILLER-ON-SPARE-ONLY", variant(slots=(3,), role=Role.BORROWED, **OTHER)),
    ("INV-CAP-AT-COMMIT", variant(slots=tuple(range(4, 10)), **OTHER)),
    ("INV-CAP-AT-COMMIT", variant(slots=(4, 5, 6, 7), relation=Relation.BORROWED, **OTHER)),
    ("INV-CAP-AT-COMMIT", variant(slots=tuple(range(4, 15)), payer="n/t/f", **OTHER)),
    ("INV-HOURS-COMMITTED", variant(slots=(4,), relation=Relation.BORROWED, **OTHER)),
    ("INV-PAYER-EXISTS", variant(payer="n/t/none", **OTHER)),
    ("INV-GANG-WHOLE", variant(slots=(4,), index=1, pod="p")),
    ("INV-BORROW-LIMIT", variant(slots=(4, 5, 6, 7, 8), relation=Relation.BORROWED, payer="n/t/f",
                                 reason=Opened.GROW, group=1)),
    ("INV-GROUP-ONE-DOMAIN", variant(node="n1", slots=(0,), index=1, pod="p", reason=Opened.GROW)),
    ("INV-ONE-ATTEMPT", variant(attempt=2, group=1, reason=Opened.GROW)),
    ("INV-ONE-POD-PER-RANK", variant(pod="another", reason=Opened.GROW)),
    ("INV-LEASE-SOUND", variant(slots=(), reason=Opened.GROW, group=1)),
    ("INV-LEASE-SOUND", variant(slots=(4, 4), reason=Opened.GROW, group=1)),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "leases"), BROKEN, ids=[f"{i} {r[0]}" for i, r in
                                                          enumerate(BROKEN)])  # fmt: skip
def test_what_a_turn_breaks_is_named(rule: str, leases: Callable[[World], list[Lease]]) -> None:
    world = a_plain_world()
    assert rule in opened(world, *leases(world))


def test_a_sound_start_breaks_nothing() -> None:
    world = a_plain_world()
    assert opened(world, a_good_lease(world)) == []
    assert check_all(world, NOW) == []


def test_a_world_that_was_broken_before_is_not_this_turns_doing() -> None:
    world = a_plain_world()
    good = a_good_lease(world)
    opened(world, good, replace(good, name="r-1-1", slots=(3, 4), reason=Opened.GROW))
    fresh = replace(good, name="other-1-2", node="n1", slots=(0, 1, 2, 3), uid="uid-other",
                    run="other", pod="q", payer="n/t/f")  # fmt: skip
    assert opened(world, fresh) == []
    assert "INV-SLOT-EXCLUSIVE" in {each.rule for each in check_all(world, NOW)}


def ended(world: World, **fields: object) -> set[str]:
    """The rules that a lease with these fields breaks once it has changed."""
    lease = a_good_lease(world)
    world.fold_open(lease)
    changed = replace(lease, **fields)
    return {each.rule for each in check_delta(world, Touched(changed=(changed,)), NOW)}


COMPLETED = ClosureReason(reason=Closed.COMPLETED)
SHRINK = Ending(why=ClosureReason(reason=Closed.SHRINK), deadline=NOW, batch=2, at=NOW)


@pytest.mark.parametrize(
    "fields",
    [
        {"closed": Closure(why=COMPLETED, at=NOW + 1, batch=2)},
        {"closed": Closure(why=COMPLETED, at=NOW - 2 * HOUR, batch=2)},
        {"closed": Closure(why=COMPLETED, at=NOW, batch=2), "ending": SHRINK},
    ],
    ids=["late", "early", "another reason"],
)
def test_a_closure_that_cannot_be_is_named(fields: dict[str, object]) -> None:
    assert ended(a_plain_world(), **fields) == {"INV-LEASE-SOUND"}


def test_a_run_that_shrinks_below_its_minimum_is_named() -> None:
    world = a_plain_world()
    run = world.runs["uid-elastic"]
    for group in range(2):
        slots = range(4 * group, 4 * group + 4)
        world.fold_open(a_lease(run, "n0", slots, batch=1, index=group, group=group))
    marked = world.fold_ending("elastic-1-1", SHRINK)
    violations = check_delta(world, Touched(changed=(marked,)), NOW)
    assert "INV-SHRINK-KEEPS-MINIMUM" in {each.rule for each in violations}


def test_a_swap_that_moves_the_bill_is_named() -> None:
    world = a_plain_world()
    spare = replace(a_good_lease(world), role=Role.SPARE, pod="")
    world.fold_open(spare)
    world.fold_close(spare.name, Closure(why=ClosureReason(reason=Closed.SWAP), at=NOW, batch=2))
    swapped = replace(spare, name="r-2-0", batch=2, role=Role.ACTIVE, reason=Opened.SWAP,
                      start=NOW, pod="p")  # fmt: skip
    world.fold_open(swapped)
    assert "INV-SWAP-KEEPS-PAYER" not in {each.rule for each in check_all(world, NOW)}
    moved = replace(swapped, name="r-2-1", payer="n/t/f")
    world.fold_open(moved)
    assert "INV-SWAP-KEEPS-PAYER" in {each.rule for each in check_all(world, NOW)}


def test_a_lottery_that_does_not_replay_is_named() -> None:
    world = a_plain_world()
    honest = a_resolution()
    world.fold_resolution(honest)
    assert "INV-LOTTERY-REPLAYS" not in {each.rule for each in check_all(world, NOW)}
    assert honest.lottery is not None
    forged = replace(honest, name="x-2", lottery=replace(honest.lottery, seed="00" * 32))
    world.fold_resolution(forged)
    assert "INV-LOTTERY-REPLAYS" in {each.rule for each in check_all(world, NOW)}


def test_an_index_that_drifted_is_named() -> None:
    world = a_plain_world()
    world.fold_open(a_good_lease(world))
    world.accounts.add(a_good_lease(world), world.terms["r-1-0"])
    found = [str(each) for each in check_all(world, NOW)]
    assert any(each.startswith("INV-WORLD-IS-ITS-FOLD account n/t/e") for each in found)


def test_leases_of_a_run_that_is_gone_are_not_judged_by_its_spec() -> None:
    world = a_plain_world()
    lone = replace(a_good_lease(world), uid="uid-gone", run="gone", slots=(0,))
    assert opened(world, lone) == []
    assert check_all(world, NOW) == []


def test_a_group_is_not_torn_apart_by_a_node_that_has_gone() -> None:
    world = a_plain_world()
    good = a_good_lease(world)
    for lease in (good, replace(good, name="r-1-1", node="n1", slots=(0,), index=1, pod="p")):
        world.fold_open(lease)
    assert "INV-GROUP-ONE-DOMAIN" in {each.rule for each in check_all(world, NOW)}
    world.drop_node("n1")
    assert "INV-GROUP-ONE-DOMAIN" not in {each.rule for each in check_all(world, NOW)}
