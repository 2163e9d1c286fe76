"""A Resolution is in the ledger; the status of its reservation was lost with the controller."""

import hashlib
from pathlib import Path

from msgspec.structs import replace

from leasehold.control.decide import decide
from leasehold.core.reservations import Reservation, State
from leasehold.core.world.rebuild import rebuilt
from leasehold.core.world.world import World
from leasehold.sim.scenario.runner import run_scenario
from leasehold.sim.scenario.stage import Stage

SEED = None
KEY = hashlib.sha256(f"leasehold/sim/{SEED}".encode()).digest()  # as in the simulator's stage
SCENARIOS = Path(__file__).resolve().parents[2] / "scenarios"


def lost(world: World) -> Reservation | None:
    """Return the reservation as the next leader reads it: still pending, with its planned site."""
    for found in world.reservations.values():
        if found.state is State.ACTIVATING:
            return replace(found, state=State.PENDING, is_site=True)
    return None


def test_activation_holds_the_same_places_after_a_restart() -> None:
    """It is held also from `w/w`, a run ahead whose payer has money while the victim stops."""
    seen: list[tuple[State, bool, bool]] = []

    def look(stage: Stage) -> None:
        assert stage.world is not None
        read = lost(stage.world)
        if read is None:
            return
        held = stage.world.reservations[read.subject].held_places
        world = rebuilt(stage.world)
        world.fold_reservation(read)
        turn = decide(world, now=stage.now, key=KEY)
        found = world.reservations[read.subject]
        seen.append((found.state, found.held_places == held, bool(turn.resolutions)))

    file = SCENARIOS / "A4-a-hold-is-kept-from-runs-ahead.yaml"
    assert run_scenario(file, seed=SEED, echo=lambda _: None, look=look).code == 0
    assert set(seen) == {(State.ACTIVATING, True, False)}
