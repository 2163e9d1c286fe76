"""The limit of requests that a controller has in flight, and the renewal that never waits."""

from pathlib import Path

from tests.kubernetes.cluster import Cluster
from tests.kubernetes.conftest import SETTINGS
from tests.kubernetes.gate import Gate
from tests.kubernetes.plane import budget, job, plane_on
from tests.kubernetes.replicas import renewed
from tests.kubernetes.wellbeing import check_consistency

AT_ONCE = 2
PODS = 6


def test_tenure_is_renewed_while_bind_requests_use_all_connections(
    installed: Cluster, tmp_path: Path
) -> None:
    """Binds wait at the gate. While all connections for binds are taken, no further bind is sent,
    but the tenure is renewed."""
    with plane_on(installed, tmp_path, f"{SETTINGS}kube: {{inFlight: {AT_ONCE}}}\n") as plane:
        plane.kubelets.add(*(f"n{number}" for number in range(PODS)))
        gate = Gate(installed)
        try:
            plane.controller(server=gate.server)
            plane.kubectl.ok("apply", "-f", plane.kubectl.file(budget()))
            gate.hold_back("POST", "/binding")
            plane.kubectl.ok("apply", "-f", plane.kubectl.file(job("train", 8 * PODS)))
            plane.until(lambda: gate.kept >= AT_ONCE)
            for _ in range(3):
                before = renewed(plane)
                plane.until(lambda before=before: renewed(plane) > before)
            assert gate.kept == AT_ONCE
            gate.release()
            plane.until_phase("train", "Running")
            check_consistency(plane)
        finally:
            plane.stop_controllers()
            gate.stop()
