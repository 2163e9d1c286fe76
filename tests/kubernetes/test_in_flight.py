"""How many requests a controller has under way at once, and which of them never wait."""

from pathlib import Path

from tests.kubernetes.cluster import Cluster
from tests.kubernetes.conftest import SETTINGS
from tests.kubernetes.gate import Gate
from tests.kubernetes.plane import budget, job, plane_on
from tests.kubernetes.replicas import renewed
from tests.kubernetes.wellbeing import all_is_well

AT_ONCE = 2
PODS = 6


def test_as_many_requests_are_under_way_as_is_set_and_tenure_is_renewed_beside_them(
    installed: Cluster, tmp_path: Path
) -> None:
    """Binds wait at the gate: while all connections for them are taken, tenure is
    renewed again and again, and no further one sets out."""
    with plane_on(installed, tmp_path, f"{SETTINGS}kube: {{inFlight: {AT_ONCE}}}\n") as plane:
        plane.kubelets.add(*(f"n{number}" for number in range(PODS)))
        gate = Gate(installed)
        try:
            plane.controller(server=gate.server)
            plane.kubectl.ok("apply", "-f", plane.kubectl.file(budget()))
            gate.keep_back("POST", "/binding")
            plane.kubectl.ok("apply", "-f", plane.kubectl.file(job("train", 8 * PODS)))
            plane.until(lambda: gate.kept >= AT_ONCE)
            for _ in range(3):
                before = renewed(plane)
                plane.until(lambda before=before: renewed(plane) > before)
            assert gate.kept == AT_ONCE
            gate.let_on()
            plane.until_phase("train", "Running")
            all_is_well(plane)
        finally:
            plane.stop_controllers()
            gate.stop()
