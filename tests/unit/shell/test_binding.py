"""Where several controllers run, a pod is bound after the head confirmed that this one leads."""

from tests.unit.shell.plant import Plant

from leasehold.core.names import Wire
from leasehold.core.objects.pod import NODE
from leasehold.core.objects.wire import part, text_at
from leasehold.core.units import MINUTE, SECOND
from leasehold.shell.ledger.commit import Ledger
from leasehold.sim.scenario.ledger import at_once, objects_of


def nodes_of_pods(plant: Plant) -> list[tuple[str, str]]:
    """Return the node of each pod, and the node that was intended when the pod was made."""
    return [
        (
            text_at(part(pod, "spec"), "nodeName"),
            text_at(part(part(pod, "metadata"), "annotations"), NODE),
        )
        for pod in objects_of(plant.store, "Pod")
    ]


def test_shared_controller_makes_unbound_pod_and_binds_it_to_lease_node() -> None:
    plant = Plant(is_shared=True)
    plant.submit("a/one")
    plant.wait(MINUTE)
    assert plant.view("a/one").phase == "Running"
    [(there, told)] = nodes_of_pods(plant)
    assert there == told == plant.leases()[0].node
    assert plant.problems() == []


def test_sole_controller_makes_pod_on_the_lease_node() -> None:
    plant = Plant()
    plant.submit("a/one")
    plant.wait(MINUTE)
    assert nodes_of_pods(plant) == [(plant.leases()[0].node, "")]


def seal_after_pod_is_made(plant: Plant) -> None:
    """Seal the ledger at the worst moment: the pod exists and is not bound yet."""
    create = plant.store.create

    async def creating(obj: Wire, *, rehearse: bool = False) -> Wire:
        made = await create(obj, rehearse=rehearse)
        if obj["kind"] == "Pod":
            await Ledger(plant.store, plant.user.clock).seal()
        return made

    plant.store.create = creating  # type: ignore[method-assign]


def test_controller_deposed_between_making_and_binding_binds_nothing() -> None:
    plant = Plant(is_shared=True)
    seal_after_pod_is_made(plant)
    plant.submit("a/one")
    plant.wait(10 * SECOND)
    [(there, told)] = nodes_of_pods(plant)
    assert (there, bool(told)) == ("", True)
    assert any(words.startswith("deposed") for words in plant.told)


def test_deposed_controller_removes_no_finalizer() -> None:
    plant = Plant(is_shared=True)
    plant.submit("a/one", lasts=MINUTE)
    plant.wait(2 * MINUTE)
    at_once(Ledger(plant.store, plant.user.clock).seal())
    at_once(plant.store.delete("Run", "a", "one", uid=None))
    plant.wait(MINUTE)
    [run] = objects_of(plant.store, "Run")
    assert part(run, "metadata")["finalizers"] == ["rq.davidlangworthy.io/leases-closed"]


def test_finalizer_is_added_and_removed_without_reading_the_run() -> None:
    plant = Plant()
    gets: list[str] = []
    get = plant.store.get

    async def getting(kind: str, namespace: str, name: str) -> Wire:
        gets.append(kind)
        return await get(kind, namespace, name)

    plant.store.get = getting  # type: ignore[method-assign]
    plant.submit("a/one")
    plant.wait(MINUTE)
    [run] = objects_of(plant.store, "Run")
    assert part(run, "metadata")["finalizers"] == ["rq.davidlangworthy.io/leases-closed"]
    at_once(plant.store.delete("Run", "a", "one", uid=None))
    plant.wait(MINUTE)
    assert objects_of(plant.store, "Run") == []
    assert "Run" not in gets
