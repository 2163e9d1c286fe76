"""After `bind.attempts` failed binds a run is blocked until a node changes, or for an hour."""

from tests.unit.shell.plant import Plant

from leasehold.adapters.objects.storage import Stored
from leasehold.core.names import Wire
from leasehold.core.objects.wire import list_at, part
from leasehold.core.units import HOUR, MINUTE, format_instant
from leasehold.sim.scenario.ledger import at_once


def _no_pods(_: Wire | None, new: Wire, __: Stored) -> list[tuple[str, str]]:
    return [("spec", "no")] if new.get("kind") == "Pod" else []


def heartbeat(plant: Plant, name: str) -> None:
    """Write the node's status again with a new heartbeat time, as its agent does."""
    node = at_once(plant.store.get("Node", "", name))
    status = part(node, "status")
    for condition in list_at(status, "conditions"):
        assert isinstance(condition, dict)
        condition["lastHeartbeatTime"] = format_instant(plant.kernel.now)
    at_once(plant.store.patch_status("Node", "", name, status, version=None))


def test_heartbeat_does_not_unblock_run_after_failed_binds() -> None:
    plant = Plant(nodes=2, strict=False)
    plant.store._writes._admit = _no_pods  # type: ignore[attr-defined]
    plant.submit("a/one")
    for _ in range(45):
        plant.wait(MINUTE)
        for name in ("n0", "n1"):
            heartbeat(plant, name)
    assert plant.view("a/one").attempt == 5
    assert plant.views()["a/one"][1] == "BindFailing"
    node = at_once(plant.store.get("Node", "", "n1"))
    at_once(plant.store.update({**node, "spec": {"unschedulable": True}}))
    plant.wait(MINUTE)
    assert plant.view("a/one").attempt == 6
    before = plant.view("a/one").attempt
    plant.wait(2 * HOUR)
    assert before < plant.view("a/one").attempt <= before + 3
