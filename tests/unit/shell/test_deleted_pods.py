"""A pod that somebody deletes is no result of its job, however the job takes it."""

import pytest
from tests.unit.shell.plant import Plant

from leasehold.core.units import MINUTE, format_instant
from leasehold.sim.machines import Work
from leasehold.sim.scenario.ledger import at_once, objects_of


def pod_names(plant: Plant) -> list[str]:
    found = []
    for pod in objects_of(plant.store, "Pod"):
        metadata = pod["metadata"]
        assert isinstance(metadata, dict)
        found.append(str(metadata["name"]))
    return sorted(found)


def delete_first(plant: Plant) -> None:
    at_once(plant.store.delete("Pod", "a", pod_names(plant)[0], uid=None))


@pytest.mark.parametrize("exit_code", [0, 3])
def test_the_lease_fails_and_the_run_with_it(exit_code: int) -> None:
    plant = Plant()
    plant.submit("a/one", runtime={"gracePeriod": "30s"})
    plant.fleet.assign(
        plant_uid(plant), (Work(lasts=None, exit_code=exit_code, stops=2_000),), per_group=False
    )
    plant.wait(MINUTE)
    delete_first(plant)
    plant.wait(MINUTE)
    view = plant.view("a/one")
    assert (view.phase, view.attempt) == ("Failed", 1)
    [lease] = plant.leases()
    assert (lease.closure, lease.cause) == ("Fail", "Deleted")
    assert pod_names(plant) == []
    assert plant.problems() == []


def plant_uid(plant: Plant) -> str:
    [run] = objects_of(plant.store, "Run")
    metadata = run["metadata"]
    assert isinstance(metadata, dict)
    return str(metadata["uid"])


def test_one_that_checkpoints_is_requeued() -> None:
    plant = Plant()
    plant.submit("a/one", runtime={"checkpoint": "5m"})
    plant.wait(MINUTE)
    delete_first(plant)
    plant.wait(MINUTE)
    view = plant.view("a/one")
    assert (view.phase, view.attempt) == ("Running", 2)
    assert [lease.closure for lease in plant.leases()] == ["Fail", ""]


def test_a_result_that_was_there_before_counts() -> None:
    """It ended by itself, and its object was removed before the loop had looked at it."""
    plant = Plant()
    plant.submit("a/one", lasts=MINUTE)
    plant.wait(MINUTE - 1)
    plant.kernel.advance_to(plant.kernel.now + 1)
    [name] = pod_names(plant)
    at_once(
        plant.store.patch_status("Pod", "a", name, status=succeeded(plant.kernel.now), version=None)
    )
    at_once(plant.store.delete("Pod", "a", name, uid=None, grace_ms=0))
    plant.wait(MINUTE)
    assert plant.view("a/one").phase == "Completed"
    assert plant.view("a/one").attempt == 1
    assert plant.problems() == []


def succeeded(at: int) -> dict[str, object]:
    terminated = {"exitCode": 0, "finishedAt": format_instant(at)}
    return {
        "phase": "Succeeded",
        "containerStatuses": [{"name": "main", "state": {"terminated": terminated}}],
    }
