"""A problem with one object affects no other object, and does not prevent the next start."""

import pytest
from tests.unit.shell.plant import Plant

from leasehold.adapters.containment import About
from leasehold.adapters.objects.admission import Admission
from leasehold.adapters.objects.storage import Stored
from leasehold.control.turn import Turn
from leasehold.core.names import Wire
from leasehold.core.objects.wire import part
from leasehold.core.units import HOUR, MINUTE, SECOND
from leasehold.ports.store import NotFound
from leasehold.sim.scenario.ledger import at_once
from leasehold.sim.scenario.parse_actions import manifest


def spoil(plant: Plant, kind: str, key: str, **spec: object) -> None:
    """Change an object past all checks."""
    namespace, _, name = key.rpartition("/")
    obj = at_once(plant.store.get(kind, namespace, name))
    plant.store._writes._admit = None  # type: ignore[attr-defined]
    at_once(plant.store.update({**obj, "spec": {**part(obj, "spec"), **spec}}))


def status_of(plant: Plant, kind: str, key: str) -> Wire:
    namespace, _, name = key.rpartition("/")
    return part(at_once(plant.store.get(kind, namespace, name)), "status")


def test_unreadable_run_is_quarantined_and_other_runs_go_on() -> None:
    plant = Plant(nodes=3, strict=False)
    plant.submit("a/bad")
    plant.submit("b/good")
    plant.wait(MINUTE)
    spoil(plant, "Run", "a/bad", resources="nonsense")
    plant.wait(MINUTE)
    assert plant.views()["b/good"] == ("Running", "Running", 8)
    status = status_of(plant, "Run", "a/bad")
    assert "cannot be read and is skipped; delete the Run and submit" in str(status["message"])
    assert "Quarantined" in str(status["conditions"])
    assert [about.words for about, _ in plant.contained] == ["Run a/bad"]
    # The controller can start again with this Run, and the Run can be deleted.
    plant.control.crash()
    plant.wait(MINUTE)
    assert plant.views()["b/good"] == ("Running", "Running", 8)
    at_once(plant.store.delete("Run", "a", "bad", uid=None))
    plant.wait(2 * MINUTE)
    with pytest.raises(NotFound):
        at_once(plant.store.get("Run", "a", "bad"))
    assert plant.problems() == []


def test_quarantine_message_is_written_again_when_overwritten() -> None:
    """A deposed controller of an older version, which could read the Run, might overwrite it."""
    plant = Plant(nodes=3, strict=False)
    plant.submit("a/bad")
    plant.wait(MINUTE)
    spoil(plant, "Run", "a/bad", resources="nonsense")
    plant.wait(MINUTE)
    at_once(plant.store.patch_status("Run", "a", "bad", {"phase": "Running"}, version=None))
    plant.wait(MINUTE)
    assert "the object cannot be read" in str(status_of(plant, "Run", "a/bad")["message"])


def test_unreadable_budget_is_quarantined_and_other_owners_runs_start() -> None:
    plant = Plant(nodes=3, strict=False)
    plant.wait(MINUTE)
    spoil(plant, "Budget", "a/a", envelopes=[{"name": "e"}])
    plant.control.crash()
    plant.submit("b/good")
    plant.wait(MINUTE)
    assert plant.views()["b/good"] == ("Running", "Running", 8)
    assert "Quarantined" in str(status_of(plant, "Budget", "a/a")["conditions"])
    at_once(plant.store.delete("Budget", "a", "a", uid=None))
    plant.wait(MINUTE)
    assert "a/a" not in plant.world.budgets


def test_leader_ignores_unreadable_objects_just_as_a_successor_does() -> None:
    """Two envelopes have one name, which a user with lending rights could once write."""
    plant = Plant(nodes=3, strict=False)
    plant.submit("a/paid", lasts=HOUR)
    plant.submit("a/spoilt", lasts=HOUR)
    plant.submit("b/good", lasts=HOUR)
    plant.wait(MINUTE)
    envelope = part(at_once(plant.store.get("Budget", "a", "a")), "spec")["envelopes"]
    assert isinstance(envelope, list)
    spoil(plant, "Budget", "a/a", envelopes=[*envelope, *envelope])
    spoil(plant, "Run", "a/spoilt", resources="nonsense")
    plant.wait(MINUTE)
    led = known(plant)
    assert "a/a" not in led[0]
    assert "a/spoilt" not in led[1]
    assert {each.run for each in plant.leases() if each.end is None} >= {"good"}
    assert "spoilt" not in {each.run for each in plant.leases() if each.end is None}

    plant.control.crash()
    plant.wait(SECOND)

    assert known(plant) == led
    assert plant.problems() == []


def known(plant: Plant) -> tuple[set[str], set[str], list[tuple[str, str]]]:
    """Return the Budgets and Runs that the controller knows, and the payer of each open lease."""
    world = plant.world
    open_leases = [each for each in world.leases.values() if each.is_open]
    return (
        set(world.budgets),
        {run.key for uid, run in world.runs.items() if world.wanted_run(uid) is not None},
        sorted((each.name, each.payer) for each in open_leases),
    )


def test_failing_observer_of_turns_does_not_stop_decisions() -> None:
    def observe(_: Turn) -> None:
        raise ZeroDivisionError("nobody thought of this")

    plant = Plant(strict=False, on_turn=observe)
    plant.submit("a/one", lasts=MINUTE)
    plant.wait(HOUR)
    assert plant.views()["a/one"] == ("Completed", "Completed", 0)
    assert [about for about, _ in plant.contained] == [About("Task", "report of a turn")]


def test_pod_refused_by_the_server_is_reported_at_once() -> None:
    """It is not reported only after the time limit for binding, with the GPUs held meanwhile."""
    plant = Plant(strict=False)
    plant.store._writes._admit = _no_pods  # type: ignore[attr-defined]
    plant.submit("a/one")
    plant.wait(5 * SECOND)
    said = [each for each in plant.told if "BindFailing" in each]
    assert said
    assert "the API server rejected the pod: " in said[0]
    assert not [each for each in plant.leases() if each.end is None]


def _no_pods(_: Wire | None, new: Wire, __: Stored) -> list[tuple[str, str]]:
    return [("metadata.labels.a", "no")] if new.get("kind") == "Pod" else []


def test_budget_with_fractional_hours_is_restored_after_a_restart() -> None:
    plant = Plant(owners="ab")
    lending = {"allow": True, "to": ["*"], "maxGPUHours": 0.00001}
    envelope = {"name": "e", "flavor": "H", "concurrency": 8, "maxGPUHours": 2.5}
    spec: Wire = {"owner": "t:c", "envelopes": [{**envelope, "lending": lending}]}
    at_once(plant.store.create(manifest("Budget", "c/c", spec)))
    plant.submit("c/one", runtime={"maxDuration": "10m"})
    plant.wait(MINUTE)
    plant.control.crash()
    plant.wait(MINUTE)
    assert plant.views()["c/one"] == ("Running", "Running", 8)
    assert plant.world.envelopes["c/c/e"].max_gpu_ms == 5 * HOUR // 2


def test_invalid_object_being_deleted_may_lose_its_finalizer() -> None:
    admission = Admission()
    bad: Wire = {
        **manifest("Run", "a/b", {"owner": 7}),
        "metadata": {"name": "b", "namespace": "a", "finalizers": ["x/y"]},
    }
    going: Wire = {**bad, "metadata": {**part(bad, "metadata"), "deletionTimestamp": "now"}}
    held = {**going, "metadata": {**part(going, "metadata"), "finalizers": []}}
    assert admission(going, held) == []
    assert admission(bad, {**bad, "metadata": {"name": "b", "namespace": "a"}})
    assert admission(going, {**held, "spec": {"owner": 8}})
