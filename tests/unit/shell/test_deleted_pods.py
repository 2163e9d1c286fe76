"""A pod that another client deletes is not a result of its job, however the job reacts."""

from typing import Any

import pytest
from tests.unit.shell.plant import Plant

from leasehold.core.objects.node import OUT_OF_SERVICE
from leasehold.core.objects.wire import list_at, part
from leasehold.core.policy import Policy
from leasehold.core.units import MINUTE, format_instant
from leasehold.shell.loop.folding import fold_of_gone
from leasehold.shell.loop.settings import PlaneSettings
from leasehold.sim.machines import NodeIs, Work
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
def test_deleted_pod_fails_its_lease_and_its_run(exit_code: int) -> None:
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
    assert (str(lease.why), lease.cause) == ("Fail", "Deleted")
    assert pod_names(plant) == []
    assert plant.problems() == []


def plant_uid(plant: Plant) -> str:
    [run] = objects_of(plant.store, "Run")
    metadata = run["metadata"]
    assert isinstance(metadata, dict)
    return str(metadata["uid"])


def test_run_with_checkpoints_is_requeued_when_its_pod_is_deleted() -> None:
    plant = Plant()
    plant.submit("a/one", runtime={"checkpoint": "5m"})
    plant.wait(MINUTE)
    delete_first(plant)
    plant.wait(MINUTE)
    view = plant.view("a/one")
    assert (view.phase, view.attempt) == ("Running", 2)
    assert [lease.why and str(lease.why) for lease in plant.leases()] == ["Fail", None]


def test_result_of_a_pod_that_ended_before_its_deletion_counts() -> None:
    """The pod ended by itself, and was deleted before the loop had seen that."""
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


def test_end_time_is_kept_for_a_pod_that_ended_just_before_its_deletion() -> None:
    """A cancelled pod ends just before it is deleted, and the controller dies just after.

    A pod that has ended is removed at once, and its end time with it.
    """
    plant = Plant()
    plant.submit("a/one", runtime={"gracePeriod": "30s"})
    plant.wait(MINUTE)
    delete, ended = plant.doomed.delete, plant.kernel.now + 10

    async def too_late(kind: str, namespace: str, name: str, **how: Any) -> None:
        plant.doomed.delete = delete  # type: ignore[method-assign]
        status = succeeded(ended)
        await plant.store.patch_status(kind, namespace, name, status=status, version=None)
        try:
            await delete(kind, namespace, name, **how)
        finally:
            plant.control.crash()

    plant.doomed.delete = too_late  # type: ignore[method-assign]
    plant.kernel.advance_to(ended)
    cancel(plant)
    plant.kernel.settle()  # the controller is dead, and stays so for a while
    plant.kernel.advance_to(ended + MINUTE)
    plant.wait(MINUTE)
    [lease] = plant.leases()
    assert (str(lease.why), lease.end) == ("Canceled", ended)
    assert plant.problems() == []


def cancel(plant: Plant) -> None:
    [run] = objects_of(plant.store, "Run")
    spec = run["spec"]
    assert isinstance(spec, dict)
    at_once(plant.store.update({**run, "spec": {**spec, "stop": True}}))


def test_late_news_of_a_deleted_pod_does_not_affect_its_replacement() -> None:
    """The pod was deleted and made again, and the event of its deletion came later."""
    plant = Plant()
    plant.submit("a/one")
    plant.wait(MINUTE)
    [wire] = objects_of(plant.store, "Pod")
    metadata = part(wire, "metadata")
    older = {**wire, "metadata": {**metadata, "uid": "older", "resourceVersion": "1"}}
    terms = PlaneSettings(policy=Policy(), lottery_key=b"")
    fold_of_gone("Pod", older, terms)(plant.world)
    assert [pod.uid for pod in plant.world.pods.values()] == [metadata["uid"]]
    plant.controller.wake()
    plant.wait(MINUTE)
    assert plant.view("a/one").phase == "Running"
    assert plant.problems() == []


def test_deleted_run_is_forgotten_with_its_last_lease() -> None:
    """Its finalizer was removed by another client, or it was deleted before it had one."""
    plant = Plant()
    plant.submit("a/one")
    plant.wait(MINUTE)
    [run] = objects_of(plant.store, "Run")
    known = [str(each) for each in list_at(part(run, "metadata"), "finalizers")]
    at_once(plant.store.set_finalizers("Run", "a", "one", [], known=known))
    at_once(plant.store.delete("Run", "a", "one", uid=None))
    plant.wait(MINUTE)
    assert [str(lease.why) for lease in plant.leases()] == ["Canceled"]
    plant.controller.wake()
    plant.wait(MINUTE)
    assert (plant.world.runs, plant.world.uid_of) == ({}, {})
    assert plant.problems() == []


def test_pod_with_closed_lease_is_removed_once_its_node_is_fenced() -> None:
    """The node's silence closed the lease, and the silent node did not stop the pod.

    Once the node is fenced, only the controller is left to remove the pod.
    """
    plant = Plant(nodes=1, policy=Policy(node_failure_after=(("*", MINUTE),)))
    plant.submit("a/one")
    plant.wait(MINUTE)
    [name] = pod_names(plant)
    plant.fleet.set_node("n0", NodeIs.SILENT)
    plant.wait(5 * MINUTE)
    assert [str(lease.why) for lease in plant.leases()] == ["NodeFailure"]
    assert pod_names(plant) == [name]
    node = at_once(plant.store.get("Node", "", "n0"))
    taint = {"key": OUT_OF_SERVICE, "value": "nodeshutdown", "effect": "NoExecute"}
    at_once(plant.store.update({**node, "spec": {**part(node, "spec"), "taints": [taint]}}))
    plant.wait(MINUTE)
    assert pod_names(plant) == []
