"""A store with a history: runs that ended, were preempted, were deleted, or still run."""

from pathlib import Path

from tests.unit.shell.plant import Plant

from leasehold.core.objects.node import Labels
from leasehold.core.units import HOUR, MINUTE
from leasehold.core.world.world import World
from leasehold.ports.store import Store
from leasehold.shell.archive.compactor import Compactor
from leasehold.shell.ledger.commit import Ledger
from leasehold.shell.loop.materialise import materialise
from leasehold.shell.loop.recover import Recovered, read_world
from leasehold.sim.scenario.ledger import at_once


def plant_with_history() -> Plant:
    """Return a plant with two nodes of eight GPUs and a history.

    One run was drawn in a lottery and still exists. Two runs ended, and one of them was deleted.
    One run goes on.
    """
    plant = Plant(nodes=2)
    for name in ("early", "gone"):
        plant.submit(f"b/{name}", lasts=MINUTE, resources=_four())
    plant.wait(5 * MINUTE)
    at_once(plant.store.delete("Run", "b", "gone", uid=None))
    plant.submit("a/fixed")
    plant.submit("a/other")
    plant.wait(MINUTE)
    plant.submit("b/big", resources={**_four(), "totalGPUs": 16}, locality={"groupGPUs": 4})
    plant.wait(HOUR)
    assert plant.world.resolutions, "a run was preempted"
    return plant


def _four() -> dict[str, object]:
    return {"gpuType": "H", "totalGPUs": 4, "gpusPerPod": 4}


def read(plant: Plant, store: Store | None = None) -> tuple[World, Ledger, Recovered]:
    """Read the world as a server that starts now does, from `store` or the plant's own."""
    seen = plant.store if store is None else store
    ledger = Ledger(seen, plant.user.clock)
    at_once(ledger.look())
    found = at_once(
        read_world(seen, plant.user.clock, ledger, policy=plant.world.policy, labels=Labels())
    )
    for batch in found.unmaterialised:
        at_once(materialise(plant.store, plant.user.clock, found.world, batch))
        ledger.note_materialised(batch.seq)
    return found.world, ledger, found


def make_compactor(plant: Plant, folder: Path, store: Store | None = None) -> Compactor:
    return Compactor(
        plant.store if store is None else store,
        plant.user.clock,
        folder=folder,
        keep_closed=0,
        max_objects=1000,
        segment_bytes=700,
    )
