"""The World is settled when every batch of a turn is in the ledger, and not before."""

from msgspec.structs import replace
from tests.unit.shell.plant import SOON, Plant

from leasehold.core.ledger.batch import batch_from_wire
from leasehold.core.names import Wire
from leasehold.core.objects.wire import part
from leasehold.core.units import MINUTE
from leasehold.sim.scenario.ledger import objects_of


def test_world_is_not_settled_between_two_batches_of_a_turn() -> None:
    """Eight runs of one GPU are ended together, in batches that hold a few endings."""
    plant = Plant(nodes=1, policy=replace(SOON, batch_bytes_max=2_000))
    for index in range(8):
        plant.submit(f"a/r{index}", resources={"gpuType": "H", "totalGPUs": 1})
    plant.wait(MINUTE)
    seen: list[tuple[bool, int]] = []
    create = plant.store.create

    async def creating(obj: Wire, *, rehearse: bool = False) -> Wire:
        if obj["kind"] == "LedgerBatch":
            batch = batch_from_wire(part(part(obj, "spec"), "batch"))
            seen.append((plant.controller.settled is None, batch.seq))
        return await create(obj, rehearse=rehearse)

    plant.store.create = creating  # type: ignore[method-assign]
    before = len(objects_of(plant.store, "LedgerBatch"))
    plant.submit("b/big", resources={"gpuType": "H", "totalGPUs": 8})
    plant.wait(16 * MINUTE)
    assert len(seen) > 2
    assert len(objects_of(plant.store, "LedgerBatch")) == before + len(seen)
    assert [seq for unsettled, seq in seen if not unsettled] == []
    assert plant.controller.settled is not None
