"""Ended pods stay for their logs; when there are too many, the oldest are deleted."""

from tests.unit.shell.plant import Plant

from leasehold.core.units import MINUTE
from leasehold.shell.ledger.commit import Ledger
from leasehold.shell.loop.ended_pods import sweep_ended_pods
from leasehold.sim.scenario.ledger import at_once, objects_of


def names(plant: Plant) -> list[str]:
    found = []
    for pod in objects_of(plant.store, "Pod"):
        metadata = pod["metadata"]
        assert isinstance(metadata, dict)
        found.append(str(metadata["name"]).partition("-")[0])
    return sorted(found)


def test_ended_pod_stays_until_its_run_is_deleted() -> None:
    plant = Plant()
    plant.submit("a/done", lasts=1_000)
    plant.submit("a/runs")
    plant.wait(MINUTE)
    assert names(plant) == ["done", "runs"]
    assert plant.view("a/done").phase == "Completed"
    assert plant.problems() == []
    at_once(plant.store.delete("Run", "a", "done", uid=None))
    plant.wait(MINUTE)
    assert names(plant) == ["runs"]


def test_pod_of_old_attempt_stays_until_its_run_is_deleted() -> None:
    plant = Plant(nodes=1)
    plant.submit("a/fails", runtime={"retries": 1})
    plant.wait(1_000)
    [before] = objects_of(plant.store, "Pod")
    assert plant.fleet.exit_pod((plant.world.uid_of["a/fails"], 0, 0), 3)
    plant.wait(2 * MINUTE)
    assert plant.view("a/fails").attempt == 2
    assert before["metadata"] != objects_of(plant.store, "Pod")[-1]["metadata"]
    assert names(plant) == ["fails", "fails"]
    assert plant.problems() == []
    at_once(plant.store.delete("Run", "a", "fails", uid=None))
    plant.wait(MINUTE)
    assert names(plant) == []


def test_sweep_deletes_oldest_ended_pods_and_no_running_pod() -> None:
    plant = Plant()
    process = plant.user
    process.tasks.spawn(
        "sweep",
        sweep_ended_pods(
            plant.store,
            process.clock,
            lambda: plant.controller.settled,
            leads=plant.controller.still_leads,
            keep=2,
        ),
    )
    plant.submit("a/runs")
    for index in range(4):
        plant.submit(f"b/done{index}", lasts=1_000)
        plant.wait(5_000)
    assert len(names(plant)) == 5
    plant.wait(MINUTE)
    assert names(plant) == ["done2", "done3", "runs"]
    assert plant.problems() == []


def test_deposed_controller_deletes_no_ended_pods() -> None:
    plant = Plant(is_shared=True)
    process = plant.user
    process.tasks.spawn(
        "sweep",
        sweep_ended_pods(
            plant.store,
            process.clock,
            lambda: plant.controller.settled,
            leads=plant.controller.still_leads,
            keep=0,
        ),
    )
    plant.submit("a/done", lasts=1_000)
    plant.wait(5_000)
    at_once(Ledger(plant.store, plant.user.clock).seal())
    plant.wait(2 * MINUTE)
    assert names(plant) == ["done"]
