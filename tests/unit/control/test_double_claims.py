"""INV-CALENDAR is checked, and it can fail."""

from tests.properties.worlds import KEY, NOW, a_budget, a_node, a_run, a_world

from leasehold.control.decide import decide
from leasehold.control.double_claims import RULE, double_claims
from leasehold.control.turn import Turn
from leasehold.core.calendar.entries import Entry
from leasehold.core.units import FOREVER, HOUR


def a_turn() -> Turn:
    """Return a turn with one node of eight GPUs, of which `ahead` has four for the next hour."""
    world = a_world([a_node("n0")], [a_budget("t")])
    turn = Turn(world, now=NOW, key=KEY, time_trusted=True)
    turn.has_walked = True
    enter(turn, "ahead", 4, start=NOW, end=NOW + HOUR)
    return turn


def enter(turn: Turn, uid: str, gpus: int, *, start: int, end: int = FOREVER) -> None:
    turn.calendar.enter(uid, [Entry(uid=uid, node="n0", gpus=gpus, start=start, end=end)])


def test_two_entries_that_claim_a_gpu_at_one_time_are_reported() -> None:
    turn = a_turn()
    enter(turn, "behind", 5, start=NOW + HOUR - 1)
    [found] = double_claims(turn)
    assert (found.rule, found.subject, found.runs) == (RULE, "n0", ("ahead", "behind"))
    assert found.why == f"at {NOW + HOUR - 1} claimed by ahead 4, behind 5"


def test_entry_that_claims_more_than_its_node_has_is_reported() -> None:
    turn = a_turn()
    enter(turn, "wide", 9, start=NOW + HOUR)
    assert [each.runs for each in double_claims(turn)] == [("wide",)]


def test_entries_on_other_gpus_or_at_later_times_are_no_double_claim() -> None:
    turn = a_turn()
    enter(turn, "beside", 4, start=NOW)
    enter(turn, "after", 4, start=NOW + HOUR)
    assert double_claims(turn) == []


def test_claims_on_a_deleted_node_are_not_reported() -> None:
    turn = a_turn()
    enter(turn, "behind", 5, start=NOW)
    turn.world.drop_node("n0")
    assert double_claims(turn) == []


def test_turn_without_a_queue_walk_is_not_checked_for_double_claims() -> None:
    turn = a_turn()
    enter(turn, "behind", 5, start=NOW)
    turn.has_walked = False
    assert double_claims(turn) == []


def test_walk_of_a_real_queue_has_no_double_claims() -> None:
    world = a_world([a_node("n0")], [a_budget("t")])
    for index in range(5):
        world.put_run(a_run(f"r{index}", group_gpus=4, span=HOUR, created=NOW + index - 9))
    turn = decide(world, now=NOW, key=KEY)
    assert len(turn.calendar.uids) == 3
    assert double_claims(turn) == []
