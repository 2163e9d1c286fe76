"""A long line: near places are told to the number, far ones about, and few are told anew."""

from msgspec.structs import replace
from tests.properties.worlds import KEY, NOW, a_budget, a_lease, a_node, a_run, a_world, an_envelope

from leasehold.control.decide import decide
from leasehold.control.turn import Turn
from leasehold.core.facts import Closed, Closure, ClosureReason
from leasehold.core.policy import Policy
from leasehold.core.reservations import Confidence
from leasehold.core.units import HOUR, SECOND
from leasehold.core.world.world import World

WAITING = 200


def a_line() -> tuple[World, Turn]:
    """One node full of runs of one GPU, and many more behind them."""
    policy = Policy(reservation_depth_per_owner=2, odds_seeds=1)
    world = a_world([a_node("n0")], [a_budget("t")], policy=policy)
    for index in range(8 + WAITING):
        world.put_run(
            a_run(f"r{index:03}", "t", group_gpus=1, pod_gpus=1, created=NOW - 999 + index)
        )
    turn = decide(world, now=NOW, key=KEY)
    world.head = replace(world.head, seq=turn.batches[-1].seq, instant=NOW)
    return world, turn


def one_ends(world: World) -> Turn:
    done = Closure(why=ClosureReason(reason=Closed.COMPLETED), at=NOW, batch=1)
    world.fold_close("r000-1-0", done)
    return decide(world, now=NOW + SECOND, key=KEY)


def words(world: World, place: int) -> str:
    """What the run is told that is so far behind those that run, from 1 on."""
    return world.memory.refusals[f"uid-r{7 + place:03}"].remedy


def test_a_near_place_is_told_to_the_number_and_a_far_one_about() -> None:
    world, _ = a_line()
    assert "; number 3 of t and 3 of all in the queue" in words(world, 3)
    assert "; number 15 of t and 15 of all in the queue" in words(world, 15)
    assert "; about number 16 of t" in words(world, 16)
    assert "; about number 16 of t" in words(world, 19)
    assert "; about number 20 of t" in words(world, 20)
    assert "; about number 192 of t" in words(world, WAITING)


def test_those_who_are_not_planned_have_no_reservation() -> None:
    world, turn = a_line()
    assert [each.run for each in world.reservations.values()] == ["r008", "r009"]
    assert len(turn.notices) == 8 + 2 * 2 + WAITING - 2  # admitted; refused, reserved; in line


def test_when_one_starts_few_are_told_that_they_moved_and_nobody_by_an_event() -> None:
    world, _ = a_line()
    turn = one_ends(world)
    assert "; number 14 of t" in words(world, 15)
    moved = [uid for uid in turn.touched if uid > "uid-r010"]
    assert len(moved) < 40
    told = {notice.subject.partition("/")[2] for notice in turn.notices}
    assert told == {"r008", "r010"}


def test_a_line_where_nothing_happened_costs_no_word() -> None:
    world, _ = a_line()
    decide(world, now=NOW + SECOND, key=KEY)
    turn = decide(world, now=NOW + 2 * SECOND, key=KEY)
    assert turn.notices == []
    assert turn.touched == {}


def test_that_one_has_no_known_start_says_nothing_of_those_behind_what_starts_since() -> None:
    """Hours that are too few until the window's end are enough from a later instant on, and another
    run that starts in between brings the instant: its end."""
    window = an_envelope("n/t/e", "t", 8, end=NOW + 10 * HOUR, max_gpu_ms=60 * HOUR)
    nodes = [a_node(f"n{index}", gpus=4) for index in range(2)]
    world = a_world(nodes, [a_budget("t", window), a_budget("u")])
    there = a_run("there", group_gpus=4, pod_gpus=4)  # has used 4 GPU-hours, and commits 40
    world.put_run(replace(there, seen_running=1))
    world.fold_open(a_lease(there, "n0", range(4), batch=0, index=0))
    for name, owner, span in (("r0", "t", None), ("r1", "u", 8 * HOUR), ("r2", "t", None)):
        world.put_run(a_run(name, owner, group_gpus=4, pod_gpus=4, span=span, created=NOW))
    decide(world, now=NOW, key=KEY)
    plans = {each.run: (each.confidence, each.starts) for each in world.reservations.values()}
    assert plans["r0"][0] is Confidence.MONEY
    assert plans["r2"] == (Confidence.EXACT, NOW + 8 * HOUR)


def test_of_those_alike_no_gang_is_in_line_that_no_batch_can_hold() -> None:
    policy = Policy(reservation_depth_per_owner=2, batch_bytes_max=6000)
    world = a_world([a_node("n0")], [a_budget("t")], policy=policy)
    for index in range(3):  # one runs, two are planned
        world.put_run(a_run(f"s{index}", "t", group_gpus=8, pod_gpus=8, created=index))
    for index in range(3):
        world.put_run(a_run(f"big{index}", "t", group_gpus=32, pod_gpus=1, created=10 + index))
    decide(world, now=NOW, key=KEY)
    told = [world.memory.refusals[f"uid-big{index}"].reason for index in range(3)]
    assert told == ["GangTooLarge"] * 3


def test_a_run_that_is_gone_leaves_nothing_behind() -> None:
    world, _ = a_line()
    uid = "uid-r150"
    world.drop_run(uid)
    decide(world, now=NOW + SECOND, key=KEY)
    assert uid not in {
        **world.work.pending,
        **world.memory.refusals,
        **world.memory.traces,
        **world.memory.behind,
    }
