"""A reservation others were cut for, whose status was lost with whoever cut them."""

from pathlib import Path

from msgspec.structs import replace

from leasehold.control.line.activation import recall_activations
from leasehold.control.line.made_room import hold_for_activations
from leasehold.control.turn import Turn
from leasehold.core.reservations import State
from leasehold.sim.scenario.runner import run_scenario
from leasehold.sim.scenario.stage import Stage

SCENARIOS = Path(__file__).resolve().parents[2] / "scenarios"


def test_it_is_activating_and_holds_its_room_before_anybody_is_considered() -> None:
    """As the next owner reads it: pending, with nothing held. The ledger has the Resolution."""
    found: list[tuple[State, int, int]] = []

    def look(stage: Stage) -> None:
        world = stage.world
        assert world is not None
        for reservation in list(world.reservations.values()):
            if reservation.state is not State.ACTIVATING:
                continue
            lost = replace(reservation, state=State.PENDING, held_places=(), held_money=())
            world.fold_reservation(lost)
            turn = Turn(world, now=stage.now, key=b"", time_trusted=True)
            recall_activations(turn)
            hold_for_activations(turn)
            held = sum(hold.gpus for hold in turn.agenda.holds_of(reservation.uid))
            planned = sum(gpus for _, gpus in reservation.held_places)
            found.append((world.reservations[reservation.subject].state, held, planned))
            world.fold_reservation(reservation)

    (file,) = SCENARIOS.glob("drain-01-*.yaml")
    assert run_scenario(file, echo=lambda _: None, look=look).code == 0
    assert found
    assert {state for state, _, _ in found} == {State.ACTIVATING}
    assert all(held == planned > 0 for _, held, planned in found)


def test_one_whose_time_has_not_come_is_left_as_it_is() -> None:
    (file,) = SCENARIOS.glob("drain-01-*.yaml")
    left: list[State] = []

    def look(stage: Stage) -> None:
        world = stage.world
        assert world is not None
        for reservation in list(world.reservations.values()):
            if reservation.state is State.ACTIVATING:
                later = replace(reservation, state=State.PENDING, starts=stage.now + 1)
                world.fold_reservation(later)
                recall_activations(Turn(world, now=stage.now, key=b"", time_trusted=True))
                left.append(world.reservations[reservation.subject].state)
                world.fold_reservation(reservation)

    assert run_scenario(file, echo=lambda _: None, look=look).code == 0
    assert set(left) == {State.PENDING}
