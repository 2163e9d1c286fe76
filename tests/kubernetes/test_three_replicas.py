"""Three controllers while requests to the API server fail, and a paused leader that resumes after
its successor has created pods."""

import os
import signal
import time

import pytest
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.gate import Gate
from tests.kubernetes.plane import Plane, budget, job
from tests.kubernetes.replicas import bound, epoch, holder
from tests.kubernetes.unreliable import Unreliable
from tests.kubernetes.wellbeing import check_consistency

# A whole minute of it in `make soak-kube`.
TROUBLED_S = 60.0 if "SOAK_MOMENTS" in os.environ else 8.0
NAMES = ("a", "b", "c")


@pytest.mark.deadline(400)
def test_runs_complete_once_when_every_fifth_request_fails_for_three_replicas(
    plane: Plane,
) -> None:
    """Requests are throttled, fail, lose their answer or are cut off, whichever replica leads."""
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
        assert len(plane.all("leases")) == 2 * len(names)  # one per pod: no pod was started twice
        assert len({pod["metadata"]["name"] for pod in bound(plane)}) == 2 * len(names)
        print(f"{troubled} requests failed under {len(names)} runs; epoch {seen}")
        check_consistency(plane)
    finally:
        plane.stop_controllers()
        way.stop()


def test_deposed_leader_that_resumes_leaves_its_successors_pods_alone(
    plane: Plane, installed: Cluster
) -> None:
    """The resumed leader sees unbound pods for which it knows no lease. It must neither delete nor
    bind any of them."""
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
        gate.hold_back("POST", "/binding")
        plane.kubectl.ok("apply", "-f", plane.kubectl.file(job("after", 16)))
        plane.until(lambda: gate.kept == 2)
        there = {pod["metadata"]["uid"] for pod in plane.pods()}
        sealed = epoch(plane)
        first.process.send_signal(signal.SIGCONT)
        plane.until(lambda: "tenure lost" in first.log())
        time.sleep(1)  # time for requests that it still meant to send
        assert {pod["metadata"]["uid"] for pod in plane.pods()} == there
        assert len(bound(plane)) == 1
        assert not any("deletionTimestamp" in pod["metadata"] for pod in plane.pods())
        gate.release()
        plane.until_phase("after", "Running")
        assert gate.answers == [201, 201]
        assert epoch(plane) == sealed
        check_consistency(plane)
    finally:
        first.process.send_signal(signal.SIGCONT)
        plane.stop_controllers()
        gate.stop()
