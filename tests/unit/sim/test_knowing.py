"""The comparison of a leader's World with what a new controller reads from the store."""

from msgspec.structs import replace
from tests.unit.shell.plant import Plant

from leasehold.adapters.objects.storage import Change, encode
from leasehold.core.objects.node import Labels
from leasehold.core.objects.wire import part
from leasehold.core.units import MINUTE
from leasehold.shell.loop.recover import WATCHED
from leasehold.sim.faults.check_knowledge import INVARIANT, SuccessorCheck
from leasehold.sim.scenario.ledger import at_once, objects_of

ALL = dict.fromkeys(WATCHED, 1 << 60)


def compared(plant: Plant, shown: dict[str, int], *, folded: bool = True) -> list[str]:
    wrong: list[str] = []
    checks = SuccessorCheck(plant.store, plant.user.clock, Labels(), wrong.append)
    for kind in WATCHED:
        key = (kind, "", "any")
        checks.on_change(Change(1, "ADDED", key, encode({"kind": kind, "metadata": {}})))
    checks.turned("c1", plant.world, shown, folded=folded)
    assert checks.evaluated[INVARIANT] == 1
    return wrong


def busy() -> Plant:
    plant = Plant(nodes=3)
    plant.submit("a/one", lasts=2 * MINUTE)
    plant.submit("b/two")
    plant.wait(5 * MINUTE)
    return plant


def test_leader_that_knows_the_same_as_the_store_passes_the_check() -> None:
    assert compared(busy(), ALL) == []


def test_leader_with_another_spec_of_a_run_is_reported_with_the_field() -> None:
    plant = busy()
    run = plant.world.runs[plant.world.uid_of["b/two"]]
    plant.world.put_run(replace(run, spec=replace(run.spec, max_duration=MINUTE)))

    [said] = compared(plant, ALL)

    assert said.startswith(f"{INVARIANT}: c1 knows spec of Run {run.uid} as RunSpec(")
    assert compared(plant, {**ALL, "Run": 0}) == [], "it has not heard of the newest Run"
    assert compared(plant, ALL, folded=False) == []


def test_leader_with_a_budget_unlike_the_stored_one_is_reported() -> None:
    plant = busy()
    budget = plant.world.budgets["a/a"]
    plant.world.put_budget(replace(budget, parents=("org:other",)))

    [said] = compared(plant, ALL)

    assert "parents of Budget a/a as ('org:other',)" in said


def test_leader_with_a_lease_unlike_the_stored_one_is_reported() -> None:
    plant = busy()
    name = next(name for name, lease in plant.world.leases.items() if lease.is_open)
    plant.world.leases[name] = replace(plant.world.leases[name], slots=(7, 6))

    assert [said for said in compared(plant, {}) if f"slots of lease {name}" in said]


def test_leader_that_still_knows_a_deleted_run_passes_the_check() -> None:
    """A reader without the Run cannot know that the lost pod was a separate group."""
    plant = Plant(nodes=3)
    plant.submit(
        "a/sweep",
        gang="Group",
        resources={"gpuType": "H", "totalGPUs": 16, "gpusPerPod": 8},
        locality={"groupGPUs": 8},
        lasts=20 * MINUTE,
    )
    plant.wait(MINUTE)
    plant.fleet.delete_node(next(iter(plant.world.open_by_node)))
    plant.wait(30 * MINUTE)
    at_once(plant.store.delete("Run", "a", "sweep", uid=None))
    wire = at_once(plant.store.get("Run", "a", "sweep"))
    metadata = {**part(wire, "metadata"), "finalizers": []}
    at_once(plant.store.update({**wire, "metadata": metadata}))

    assert not objects_of(plant.store, "Run")
    assert "a/sweep" in plant.world.uid_of
    assert compared(plant, {}) == []
