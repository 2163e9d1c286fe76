"""The Resolution that is recorded when an owner takes its envelope back from its family."""

from tests.unit.shell.plant import Plant

from leasehold.core.resolutions import CutCause
from leasehold.core.units import MINUTE


def test_scope_of_a_reclaim_is_the_owners_envelope_even_with_other_payers() -> None:
    """The victim's first leases are paid by its own envelope, which nobody else can take back."""
    plant = Plant(nodes=2, owners="ab", concurrency=6)
    plant.submit("a/victim", resources={"gpuType": "H", "totalGPUs": 8, "gpusPerPod": 1})
    plant.wait(MINUTE)
    plant.submit("b/owner", resources={"gpuType": "H", "totalGPUs": 6, "gpusPerPod": 6})
    plant.wait(15 * MINUTE)
    assert plant.views()["b/owner"][0] == "Running"
    (found,) = plant.world.resolutions.values()
    assert (found.cause, found.envelope) == (CutCause.OVERDRAFT, "b/b/e")
