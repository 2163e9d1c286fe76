"""Three controllers while the way to the API server fails, and one that wakes up in a world that
somebody else has filled meanwhile."""

import os
import signal
import time

import pytest
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.gate import Gate
from tests.kubernetes.plane import Plane, budget, job
from tests.kubernetes.replicas import bound, epoch, holder
from tests.kubernetes.unreliable import Unreliable
from tests.kubernetes.wellbeing import all_is_well

# A whole minute of it in `make soak-kube`.
TROUBLED_S = 60.0 if "SOAK_MOMENTS" in os.environ else 8.0
NAMES = ("a", "b", "c")


@pytest.mark.deadline(400)
def test_when_every_fifth_request_fails_nothing_is_lost_and_nothing_done_twice(
    plane: Plane,
) -> None:
    """Refused, failed before and after it was written, and cut off, whichever of them decides."""
    plane.kubelets.add("n1", "n2", "n3", "n4")
    way = Unreliable(plane.cluster, every=5)
    try:
        for name in NAMES:
            plane.controller(name, server=way.server)
        plane.kubectl.ok("apply", "-f", plane.kubectl.file(budget(gpus=32)))
        plane.until(lambda: bool(holder(plane)))
        names, due = list[str](), time.monotonic() + TROUBLED_S
        while time.monotonic() < due:
            pair = [f"r{len(names)}", f"r{len(names) + 1}"]
            names += pair
            plane.kubectl.ok("apply", "-f", plane.kubectl.file(*(job(name, 16) for name in pair)))
            for name in pair:
                run = plane.until_phase(name, "Running")
                plane.exit_all(run["metadata"]["uid"])
        for name in names:
            plane.until_phase(name, "Completed")
        troubled, seen = way.troubled, epoch(plane)
        way.heal()
        assert troubled > 20
        assert {plane.run(name)["status"]["attempt"] for name in names} == {1}
        assert len(plane.all("leases")) == 2 * len(names)  # one a pod: nobody was started twice
        assert len({pod["metadata"]["name"] for pod in bound(plane)}) == 2 * len(names)
        print(f"{troubled} requests failed under {len(names)} runs; epoch {seen}")
        all_is_well(plane)
    finally:
        plane.stop_controllers()
        way.stop()


def test_one_that_wakes_up_among_its_successors_pods_leaves_them_alone(
    plane: Plane, installed: Cluster
) -> None:
    """It knows of no lease that asks for them, they are on no node, and its watch is full of them:
    it neither sweeps nor binds any."""
    plane.kubelets.add("n1", "n2", "n3")
    gate = Gate(installed)
    first = plane.controller("first")
    try:
        plane.until(lambda: holder(plane) == "first")
        plane.kubectl.ok("apply", "-f", plane.kubectl.file(budget(), job("before", 8)))
        plane.until_phase("before", "Running")
        for name in ("second", "third"):
            plane.controller(name, server=gate.server)
        first.process.send_signal(signal.SIGSTOP)
        plane.until(lambda: holder(plane) in ("second", "third"))
        gate.keep_back("POST", "/binding")
        plane.kubectl.ok("apply", "-f", plane.kubectl.file(job("after", 16)))
        plane.until(lambda: gate.kept == 2)
        there = {pod["metadata"]["uid"] for pod in plane.pods()}
        sealed = epoch(plane)
        first.process.send_signal(signal.SIGCONT)
        plane.until(lambda: "tenure lost" in first.log())
        time.sleep(1)  # whatever it still meant to do
        assert {pod["metadata"]["uid"] for pod in plane.pods()} == there
        assert len(bound(plane)) == 1
        assert not any("deletionTimestamp" in pod["metadata"] for pod in plane.pods())
        gate.let_on()
        plane.until_phase("after", "Running")
        assert gate.answers == [201, 201]
        assert epoch(plane) == sealed
        all_is_well(plane)
    finally:
        first.process.send_signal(signal.SIGCONT)
        plane.stop_controllers()
        gate.stop()
