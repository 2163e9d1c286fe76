"""What an activation under way holds, for how long, and where its run starts (A4)."""

from msgspec.structs import replace
from tests.properties.worlds import KEY, a_lease
from tests.questions.played import SCENARIOS, Played

from leasehold.control.scheduling.holds import (
    Hold,
    ends_at,
    enter_hold,
    enter_holds,
    groups_held_for,
    hold_of,
    start_where_held,
    still_paid,
    still_there,
)
from leasehold.control.scheduling.requests import start_request_for
from leasehold.control.turn import Turn
from leasehold.core.calendar.entries import Entry
from leasehold.core.facts import Closed, Closure, ClosureReason, Run
from leasehold.core.policy import Policy
from leasehold.core.reservations import State
from leasehold.core.units import FOREVER, HOUR, MINUTE, SECOND
from leasehold.core.verdicts import Admitted
from leasehold.core.world.world import World

# `x/x` is preempted at 1h14m50s and stops at 1h15m; its 16 GPUs are held for `z/z`.
KEPT = SCENARIOS / "A4-a-hold-is-kept-from-runs-ahead.yaml"
DURING = "1h14m52s"
RESOLVED = 74 * MINUTE + 50 * SECOND


class Stopping:
    """The World while the victim stops."""

    def __init__(self) -> None:
        self.played = Played(KEPT, DURING)
        self.world: World = self.played.world
        self.run: Run = self.world.runs[self.world.uid_of["z/z"]]
        found = hold_of(self.world, self.run)
        assert found is not None
        self.hold: Hold = found

    @property
    def turn(self) -> Turn:
        return Turn(self.world, now=self.played.now, key=KEY, time_trusted=True)

    def start(self, *others: Entry) -> Admitted | None:
        turn = self.turn
        for entry in others:
            turn.calendar.enter(entry.uid, [entry])
        return start_where_held(turn, self.hold, start_request_for(self.world, self.run, (0,)))

    def end_victims(self) -> None:
        for name in still_there(self.world, self.hold):
            self.world.drop_pod(f"x/{self.world.leases[name].pod}")
            why = ClosureReason(reason=Closed.RANDOM_PREEMPT)
            self.world.fold_close(name, Closure(why=why, at=self.played.now, batch=99))


def test_only_an_activating_reservation_has_a_hold() -> None:
    found = Stopping()
    assert found.hold.reservation.held_places == (("a-00", 8), ("a-01", 8))
    assert len(found.hold.victims) == 2
    for key in ("x/x", "w/w"):
        assert hold_of(found.world, found.world.runs[found.world.uid_of[key]]) is None
    pending = replace(found.hold.reservation, state=State.PENDING)
    found.world.fold_reservation(pending)
    assert hold_of(found.world, found.run) is None


def test_hold_ends_with_drain_timeout_but_not_before_the_last_deadline() -> None:
    """The victims have 30 seconds after the Resolution."""
    found = Stopping()
    resolved = found.played.start + RESOLVED
    for timeout, expected in ((15 * MINUTE, 15 * MINUTE), (MINUTE, MINUTE), (SECOND, 30 * SECOND)):
        found.world.policy = Policy(victim_timeout=timeout)
        assert ends_at(found.world, found.hold) == resolved + expected
    found.end_victims()
    assert ends_at(found.world, found.hold) == resolved + 30 * SECOND, "it was promised so long"


def test_all_places_and_payers_of_a_hold_are_in_the_calendar() -> None:
    found = Stopping()
    turn = found.turn
    enter_holds(turn)
    entries = turn.calendar.entries_of(found.run.uid)
    assert {(each.node, each.gpus, each.start, each.end) for each in entries} == {
        ("a-00", 8, turn.now, FOREVER),
        ("a-01", 8, turn.now, FOREVER),
    }
    [claim] = turn.calendar.claims[found.run.uid]
    assert (claim.payer, claim.gpus) == ("z/z/e", 16)


def test_hold_of_a_run_with_a_limit_ends_one_limit_after_the_last_deadline() -> None:
    found = Stopping()
    limited = replace(found.run, spec=replace(found.run.spec, max_duration=HOUR))
    found.world.put_run(limited)
    turn = found.turn
    enter_holds(turn)
    deadline = found.played.start + RESOLVED + 30 * SECOND
    entries = turn.calendar.entries_of(found.run.uid)
    assert {each.end for each in entries} == {deadline + HOUR}


def test_hold_shrinks_by_the_gpus_that_its_run_has_leased() -> None:
    """The groups of a sweep start one by one."""
    found = Stopping()
    found.end_victims()
    lease = a_lease(
        found.run, "a-00", range(8), batch=99, index=0, payer="z/z/e", start=found.played.now
    )
    found.world.fold_open(lease)
    turn = found.turn
    enter_hold(turn, found.hold)
    entries = turn.calendar.entries_of(found.run.uid)
    assert [(each.node, each.gpus) for each in entries] == [("a-01", 8)]
    [claim] = turn.calendar.claims[found.run.uid]
    assert claim.gpus == 8


def test_run_starts_in_its_hold_once_all_held_gpus_are_free() -> None:
    found = Stopping()
    assert found.start() is None
    found.end_victims()
    plan = found.start()
    assert plan is not None
    assert plan.packed.gpus_by_node == (("a-00", 8), ("a-01", 8))
    assert [(s.envelope, s.gpus) for _, each in plan.covered for s in each.segments] == [
        ("z/z/e", 16)
    ]


def test_plan_of_an_earlier_run_does_not_prevent_a_start_in_a_hold() -> None:
    """A hold has priority over every plan, and respects only other holds."""
    found = Stopping()
    found.end_victims()
    ahead = found.world.uid_of["w/w"]
    plan = Entry(uid=ahead, node="a-00", gpus=8, start=found.played.now)
    assert found.start(plan) is not None


def test_run_does_not_start_in_a_held_place_taken_by_others() -> None:
    found = Stopping()
    found.end_victims()
    found.world.fleet.load("a-01", gpus=1, cpu_milli=0, memory_bytes=0, pods=1)
    assert found.start() is None


def test_hold_is_unpaid_once_the_budget_allows_too_few_gpus() -> None:
    found = Stopping()
    request = start_request_for(found.world, found.run, (0,))
    assert still_paid(found.turn, found.hold, request)
    budget = found.world.budgets["z/z"]
    [envelope] = budget.envelopes
    found.world.put_budget(replace(budget, envelopes=(replace(envelope, concurrency=15),)))
    assert not still_paid(found.turn, found.hold, request)


def test_hold_of_a_gang_is_for_the_whole_gang() -> None:
    found = Stopping()
    assert groups_held_for(found.world, found.hold, found.played.now) == (0,)


def test_checks_of_a_hold_change_nothing() -> None:
    found = Stopping()
    free = {name: state.free for name, state in found.world.fleet.nodes.items()}
    found.start()
    still_paid(found.turn, found.hold, start_request_for(found.world, found.run, (0,)))
    assert {name: state.free for name, state in found.world.fleet.nodes.items()} == free
    assert not found.world.what_if.active
