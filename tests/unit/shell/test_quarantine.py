"""A defect of leasehold is contained: its run is quarantined; a second one stops binding."""

import pytest
from msgspec.structs import replace
from tests.unit.shell.plant import Plant, followed

from leasehold.control.decide import decide
from leasehold.control.turn import Turn
from leasehold.core.units import MINUTE
from leasehold.core.world.world import World
from leasehold.shell.loop.defects import InvariantBroken
from leasehold.shell.loop.loop import Decider
from leasehold.sim.scenario.ledger import at_once


def spoiling(*runs: str) -> Decider:
    """Return a decider that is correct, except that these runs' leases name one GPU twice."""

    def spoil(world: World, turn: Turn) -> None:
        for lease in [each for batch in turn.batches for each in batch.opened]:
            if lease.run_key in runs:
                world.leases[lease.name] = replace(lease, slots=(0, 0))

    return followed(decide, spoil)


def status_of(plant: Plant, name: str) -> str:
    stored = at_once(plant.store.get("Run", name[0], name[2:]))
    return str(stored.get("status"))


def test_run_named_by_a_defect_is_quarantined_and_others_go_on() -> None:
    plant = Plant(nodes=3, strict=False, decider=spoiling("a/bad"))
    plant.submit("b/first")
    plant.wait(MINUTE)
    plant.submit("a/bad")
    plant.submit("b/second", lasts=5 * MINUTE)
    plant.wait(MINUTE)
    assert plant.views() == {
        "a/bad": ("Pending", "Quarantined", 0),
        "b/first": ("Running", "Running", 8),
        "b/second": ("Running", "Running", 8),
    }
    assert "Quarantined" in status_of(plant, "a/bad")
    assert [each for each in plant.told if each.startswith("alert: defect: INV-LEASE-SOUND")]
    plant.submit("b/third")
    plant.wait(10 * MINUTE)
    assert plant.views()["b/second"] == ("Completed", "Completed", 0)
    assert plant.views()["b/third"] == ("Running", "Running", 8)
    assert not [each for each in plant.told if "stopped" in each]
    assert not [each for each in plant.leases() if each.run == "bad"], "nothing was committed"
    assert plant.problems() == []


def test_second_defect_stops_binding_and_running_work_goes_on() -> None:
    plant = Plant(nodes=4, strict=False, decider=spoiling("a/bad", "b/worse"))
    plant.submit("b/first", lasts=20 * MINUTE)
    plant.submit("a/bad")
    plant.wait(MINUTE)
    plant.submit("b/worse")
    plant.wait(MINUTE)
    plant.submit("b/late")
    plant.wait(MINUTE)
    assert "alert: binding and preemption are stopped" in plant.told
    assert plant.views() == {
        "a/bad": ("Pending", "Quarantined", 0),
        "b/first": ("Running", "Running", 8),
        "b/late": ("Pending", "BinderDisabled", 0),
        "b/worse": ("Pending", "Quarantined", 0),
    }
    plant.wait(20 * MINUTE)
    assert plant.views()["b/first"] == ("Completed", "Completed", 0)
    assert plant.problems() == []


def test_first_defect_stops_everything_in_strict_mode() -> None:
    plant = Plant(decider=spoiling("a/bad"))
    plant.submit("a/bad")
    with pytest.raises(InvariantBroken) as caught:
        plant.wait(MINUTE)
    assert "INV-LEASE-SOUND" in {each.rule for each in caught.value.violations}
