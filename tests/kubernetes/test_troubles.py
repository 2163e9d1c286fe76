"""Faults on a cluster: an API server that fails, lost nodes, and users who interfere."""

import json
from typing import Any

from tests.kubernetes.plane import API, RUNS, Plane, budget, job
from tests.kubernetes.unreliable import Unreliable
from tests.kubernetes.wellbeing import check_consistency

from leasehold.sim.machines import NodeIs


def test_runs_complete_once_when_every_fifth_request_fails(
    plane: Plane,
) -> None:
    """Requests are throttled, fail, lose their answer or are cut off, in turn."""
    plane.kubelets.add("n1", "n2", "n3")
    way = Unreliable(plane.cluster, every=5)
    try:
        plane.controller(server=way.server)
        names = [f"r{number}" for number in range(6)]
        jobs = [job(name, 8) for name in names]
        plane.kubectl.ok("apply", "-f", plane.kubectl.file(budget(), *jobs))
        for name in names:
            run = plane.until_phase(name, "Running")
            plane.exit_all(run["metadata"]["uid"])
        for name in names:
            plane.until_phase(name, "Completed")
        assert way.troubled > 10
        way.heal()
        assert len(plane.all("leases")) == len(names)  # no run was started twice
        check_consistency(plane)
    finally:
        plane.stop_controllers()
        way.stop()


def test_deleted_pod_ends_its_attempt_and_run_starts_again(plane: Plane) -> None:
    plane.kubelets.add("n1")
    plane.controller()
    made = job("train", 8, runtime={"checkpoint": "1m"})
    plane.kubectl.ok("apply", "-f", plane.kubectl.file(budget(), made))
    plane.until_phase("train", "Running")
    [pod] = plane.pods()
    plane.kubectl.ok("delete", "pod", pod["metadata"]["name"], "-n", "team", "--wait=false")
    plane.until(lambda: plane.run("train")["status"]["attempt"] == 2)
    plane.until_phase("train", "Running")
    closed = [each["status"] for each in plane.all("leases") if each.get("status")]
    assert [each["closureReason"] for each in closed] == ["Fail"]
    check_consistency(plane)


def test_deleted_run_is_removed_after_its_leases_are_canceled(plane: Plane) -> None:
    plane.kubelets.add("n1")
    plane.controller()
    plane.kubectl.ok("apply", "-f", plane.kubectl.file(budget(), job("train", 8)))
    plane.until_phase("train", "Running")
    plane.kubectl.ok("delete", "run", "train", "-n", "team", "--timeout=30s")
    assert [each["status"]["closureReason"] for each in plane.all("leases")] == ["Canceled"]
    check_consistency(plane)


def test_run_is_requeued_when_its_node_is_dead_but_not_when_silent(
    plane: Plane,
) -> None:
    plane.kubelets.add("n1", "n2")
    plane.controller()
    made = job("train", 8, runtime={"checkpoint": "1m"})
    plane.kubectl.ok("apply", "-f", plane.kubectl.file(budget(), made))
    plane.until_phase("train", "Running")
    [pod] = plane.pods()
    node = pod["spec"]["nodeName"]
    plane.kubelets.to_machines(lambda fleet: fleet.set_node(node, NodeIs.SILENT))
    plane.until(lambda: not _is_ready(plane, node))
    assert plane.run("train")["status"]["attempt"] == 1
    plane.kubelets.to_machines(lambda fleet: fleet.set_node(node, NodeIs.DEAD))
    plane.until(lambda: plane.run("train")["status"]["attempt"] == 2)
    plane.until_phase("train", "Running")
    placed = {each["spec"]["nodeName"] for each in plane.pods() if _is_live(each)}
    assert placed == {"n1", "n2"} - {node}
    closed = [each["status"] for each in plane.all("leases") if each.get("status")]
    assert [each["closureReason"] for each in closed] == ["NodeFailure"]
    check_consistency(plane)


def _is_ready(plane: Plane, node: str) -> bool:
    found = plane.get(f"/api/v1/nodes/{node}")["status"]["conditions"]
    return any(each["type"] == "Ready" and each["status"] == "True" for each in found)


def _is_live(pod: Any) -> bool:
    return "deletionTimestamp" not in pod["metadata"]


def test_gpus_of_foreign_pods_are_not_used_and_those_pods_stay(plane: Plane) -> None:
    plane.kubelets.add("n1")
    resources = {"limits": {"nvidia.com/gpu": "4"}, "requests": {"nvidia.com/gpu": "4"}}
    container = {"name": "main", "image": "none", "resources": resources}
    foreign = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "theirs"},
               "spec": {"nodeName": "n1", "containers": [container]}}  # fmt: skip
    plane.cluster.client.ask("POST", "/api/v1/namespaces/other/pods", foreign)
    plane.controller()
    jobs = [job("small", 4), job("large", 8)]
    plane.kubectl.ok("apply", "-f", plane.kubectl.file(budget(), *jobs))
    plane.until_phase("small", "Running")
    plane.until(lambda: bool(plane.run("large").get("status")))
    assert plane.run("large")["status"]["phase"] == "Pending"
    assert [pod["metadata"]["name"] for pod in plane.pods("other")] == ["theirs"]


def test_run_with_invalid_pod_template_shows_the_reason(plane: Plane) -> None:
    """The API server's schema allows more in a pod template than leasehold's rules do."""
    plane.controller()
    bad: Any = job("odd", 8)
    limits = {"limits": {"nvidia.com/gpu": "1"}}
    bad["spec"]["template"]["spec"]["containers"][0]["resources"] = limits
    plane.cluster.client.ask("POST", RUNS, bad)
    plane.until(lambda: "leasehold adds the GPUs itself" in _conditions(plane, "odd"))
    assert "Error" not in _conditions(plane, "odd")
    assert API in plane.run("odd")["apiVersion"]


def _conditions(plane: Plane, name: str) -> str:
    return json.dumps(plane.run(name).get("status", {}))
