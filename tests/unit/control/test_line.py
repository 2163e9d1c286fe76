"""A long queue: near places are exact, far ones approximate, and few messages change at a time."""

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


def a_queue() -> tuple[World, Turn]:
    """Return a World with one node full of runs of one GPU, and many more in the queue."""
    policy = Policy(reservation_depth_per_owner=2, odds_seeds=1)
    world = a_world([a_node("n0")], [a_budget("t")], policy=policy)
    for index in range(8 + WAITING):
        world.put_run(
            a_run(f"r{index:03}", "t", group_gpus=1, pod_gpus=1, created=NOW - 999 + index)
        )
    turn = decide(world, now=NOW, key=KEY)
    world.head = replace(world.head, seq=turn.batches[-1].seq, instant=NOW)
    return world, turn


def let_one_end(world: World) -> Turn:
    done = Closure(why=ClosureReason(reason=Closed.COMPLETED), at=NOW, batch=1)
    world.fold_close("r000-1-0", done)
    return decide(world, now=NOW + SECOND, key=KEY)


def words(world: World, place: int) -> str:
    """Return the message of the run at this place in the queue, counted from 1."""
    return world.memory.refusals[f"uid-r{7 + place:03}"].remedy


def test_near_places_in_the_queue_are_exact_and_far_ones_approximate() -> None:
    world, _ = a_queue()
    assert "; number 3 of t and 3 of all in the queue" in words(world, 3)
    assert "; number 15 of t and 15 of all in the queue" in words(world, 15)
    assert "; about number 16 of t" in words(world, 16)
    assert "; about number 16 of t" in words(world, 19)
    assert "; about number 20 of t" in words(world, 20)
    assert "; about number 192 of t" in words(world, WAITING)


def test_only_planned_runs_have_reservations() -> None:
    world, turn = a_queue()
    assert [each.run for each in world.reservations.values()] == ["r008", "r009"]
    assert len(turn.notices) == 8 + 2 * 2 + WAITING - 2  # admitted; refused, reserved; queued


def test_start_of_one_run_updates_few_others_and_sends_them_no_event() -> None:
    world, _ = a_queue()
    turn = let_one_end(world)
    assert "; number 14 of t" in words(world, 15)
    moved = [uid for uid in turn.touched if uid > "uid-r010"]
    assert len(moved) < 40
    told = {notice.subject.partition("/")[2] for notice in turn.notices}
    assert told == {"r008", "r010"}


def test_turn_without_changes_writes_no_messages() -> None:
    world, _ = a_queue()
    decide(world, now=NOW + SECOND, key=KEY)
    turn = decide(world, now=NOW + 2 * SECOND, key=KEY)
    assert turn.notices == []
    assert turn.touched == {}


def test_run_gets_exact_start_although_an_earlier_run_has_no_known_start() -> None:
    """The hours are too few until the window's end, but enough from a later instant on.

    That instant is the end of another run, which starts in between.
    """
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


def test_each_of_several_equal_gangs_too_large_for_a_batch_is_refused() -> None:
    policy = Policy(reservation_depth_per_owner=2, batch_bytes_max=6000)
    world = a_world([a_node("n0")], [a_budget("t")], policy=policy)
    for index in range(3):  # one runs, two are planned
        world.put_run(a_run(f"s{index}", "t", group_gpus=8, pod_gpus=8, created=index))
    for index in range(3):
        world.put_run(a_run(f"big{index}", "t", group_gpus=32, pod_gpus=1, created=10 + index))
    decide(world, now=NOW, key=KEY)
    told = [world.memory.refusals[f"uid-big{index}"].reason for index in range(3)]
    assert told == ["GangTooLarge"] * 3


def test_deleted_run_leaves_nothing_in_worklist_or_memory() -> None:
    world, _ = a_queue()
    uid = "uid-r150"
    world.drop_run(uid)
    decide(world, now=NOW + SECOND, key=KEY)
    assert uid not in {
        **world.work.pending,
        **world.memory.refusals,
        **world.memory.traces,
        **world.memory.behind,
    }
