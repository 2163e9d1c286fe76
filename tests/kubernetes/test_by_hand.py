"""What users do to pods, leases and nodes by hand while Runs go on."""

import json
import time
from pathlib import Path
from typing import Any

from tests.kubernetes.cluster import Cluster
from tests.kubernetes.conftest import SETTINGS
from tests.kubernetes.plane import API, Plane, budget, job, plane_on
from tests.kubernetes.wellbeing import check_consistency

from leasehold.sim.machines import NodeIs

HELD = "rq.davidlangworthy.io/lease-closed"
CHECKPOINTS: dict[str, object] = {"runtime": {"checkpoint": "1m"}}


def _running(plane: Plane, *jobs: dict[str, Any]) -> None:
    plane.kubectl.ok("apply", "-f", plane.kubectl.file(budget(), *jobs))
    for each in jobs:
        plane.until_phase(each["metadata"]["name"], "Running")


def _live(plane: Plane) -> list[Any]:
    return [pod for pod in plane.pods() if "deletionTimestamp" not in pod["metadata"]]


def _closed(plane: Plane) -> list[str]:
    found = [each.get("status", {}) for each in plane.all("leases")]
    return sorted(each["closureReason"] for each in found if each.get("closed"))


def test_force_deleted_pod_keeps_its_lease_until_kubelet_reports_its_end(plane: Plane) -> None:
    """The pod object stays until the kubelet itself reports that the pod has ended."""
    plane.kubelets.add("n1", "n2")
    plane.controller()
    _running(plane, job("train", 8, **CHECKPOINTS))
    [pod] = plane.pods()
    name, node = pod["metadata"]["name"], pod["spec"]["nodeName"]
    assert pod["metadata"]["finalizers"] == [HELD]
    plane.kubelets.to_machines(lambda fleet: fleet.set_node(node, NodeIs.SILENT))
    plane.kubectl.ok("delete", "pod", name, "-n", "team", "--force", "--grace-period=0",
                     "--wait=false")  # fmt: skip
    time.sleep(1)  # time for the controller to react wrongly
    assert plane.run("train")["status"]["attempt"] == 1
    assert _closed(plane) == []
    plane.kubelets.to_machines(lambda fleet: fleet.set_node(node, NodeIs.READY))
    plane.until(lambda: plane.run("train")["status"]["attempt"] == 2)
    plane.until_phase("train", "Running")
    assert _closed(plane) == ["Fail"]
    plane.until(lambda: name not in [each["metadata"]["name"] for each in plane.pods()])
    check_consistency(plane)


def test_completed_pod_stays_for_its_log_and_can_be_deleted(plane: Plane) -> None:
    plane.kubelets.add("n1")
    plane.controller()
    _running(plane, job("train", 8))
    plane.exit_all(plane.run("train")["metadata"]["uid"])
    plane.until_phase("train", "Completed")
    plane.until(lambda: all(not each["metadata"].get("finalizers") for each in plane.pods()))
    [pod] = plane.pods()
    assert pod["status"]["phase"] == "Succeeded"
    plane.kubectl.ok("delete", "pod", pod["metadata"]["name"], "-n", "team", "--timeout=20s")
    assert _closed(plane) == ["Completed"]


def test_pod_of_failed_attempt_stays_for_its_log(installed: Cluster, tmp_path: Path) -> None:
    with plane_on(installed, tmp_path, f"{SETTINGS}\nretry: {{backoff: 1s}}") as plane:
        plane.kubelets.add("n1")
        plane.controller()
        made = job("train", 8, runtime={"retries": 1})
        plane.kubectl.ok("apply", "-f", plane.kubectl.file(budget(), made))
        run = plane.until_phase("train", "Running")
        [first] = plane.pods()
        plane.exit_all(run["metadata"]["uid"], 3)
        plane.until(lambda: plane.run("train")["status"]["attempt"] == 2)
        plane.until_phase("train", "Running")
        # The failed pod has no finalizer, and leasehold does not delete it.
        plane.until(lambda: not _pod(plane, first)["metadata"].get("finalizers"))
        assert _pod(plane, first)["status"]["phase"] == "Failed"
        assert "deletionTimestamp" not in _pod(plane, first)["metadata"]
        plane.kubectl.ok("delete", "run", "train", "-n", "team", "--timeout=30s")
        plane.until(lambda: plane.pods() == [])
        check_consistency(plane)


def _pod(plane: Plane, pod: Any) -> Any:
    return plane.get(f"/api/v1/namespaces/team/pods/{pod['metadata']['name']}")


def test_evicted_pod_does_not_count_as_failure_of_its_run(plane: Plane) -> None:
    """The run has no retries: if the eviction counted as its failure, it would be over."""
    plane.kubelets.add("n1")
    plane.controller()
    _running(plane, job("train", 8, **CHECKPOINTS))
    [pod] = plane.pods()
    name = pod["metadata"]["name"]
    evicted = {
        "phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory.",
        "containerStatuses": [{"name": "main", "image": "none", "imageID": "", "ready": False,
                               "restartCount": 0, "state": {"terminated": {"exitCode": 137}}}],
    }  # fmt: skip
    plane.cluster.client.ask(
        "PATCH", f"/api/v1/namespaces/team/pods/{name}/status",
        json.dumps({"status": evicted}).encode(),
        headers={"Content-Type": "application/merge-patch+json"},
    )  # fmt: skip
    plane.until(lambda: plane.run("train")["status"]["attempt"] == 2)
    assert _closed(plane) == ["Fail"]
    plane.until_phase("train", "Running")


def test_eviction_is_allowed_while_a_spare_can_take_over(plane: Plane) -> None:
    """A gang with one spare may lose one pod, and its disruption budget allows that."""
    plane.kubelets.add("n1", "n2")
    plane.kubelets.add("n3", reserved=True)
    plane.controller()
    gang = job("train", 16, sparesPerGroup=8)
    _running(plane, gang)
    budgets = plane.get("/apis/policy/v1/namespaces/team/poddisruptionbudgets")["items"]
    assert [each["spec"]["minAvailable"] for each in budgets] == [1]
    before = {pod["metadata"]["name"] for pod in plane.pods()}
    victim = sorted(before)[0]
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction",
                "metadata": {"name": victim, "namespace": "team"}}  # fmt: skip
    path = f"/apis/policy/v1/namespaces/team/poddisruptionbudgets/{budgets[0]['metadata']['name']}"
    # This cluster has no disruption controller, which would count the healthy pods.
    counted = {"currentHealthy": 2, "desiredHealthy": 1, "disruptionsAllowed": 1, "expectedPods": 2,
               "observedGeneration": budgets[0]["metadata"]["generation"]}  # fmt: skip
    patch = {"Content-Type": "application/merge-patch+json"}
    plane.cluster.client.ask(
        "PATCH", f"{path}/status", json.dumps({"status": counted}).encode(), headers=patch
    )
    answer = plane.cluster.client.ask(
        "POST", f"/api/v1/namespaces/team/pods/{victim}/eviction", eviction
    )
    assert answer.status == 201, answer.body
    plane.until(lambda: len({each["metadata"]["name"] for each in _live(plane)} - before) == 1)
    plane.until(lambda: len(_live(plane)) == 2)
    assert plane.run("train")["status"]["attempt"] == 1
    # The only spare is used: the budget allows no further eviction.
    plane.until(lambda: plane.get(path)["spec"]["minAvailable"] == 2)
    check_consistency(plane)


def test_run_on_deleted_node_starts_again_elsewhere(plane: Plane) -> None:
    plane.kubelets.add("n1", "n2")
    plane.controller()
    _running(plane, job("train", 8, **CHECKPOINTS))
    [pod] = plane.pods()
    node = pod["spec"]["nodeName"]
    plane.kubelets.to_machines(lambda fleet: fleet.delete_node(node))
    plane.until(lambda: plane.run("train")["status"]["attempt"] == 2)
    plane.until_phase("train", "Running")
    assert {each["spec"]["nodeName"] for each in _live(plane)} == {"n1", "n2"} - {node}
    assert _closed(plane) == ["NodeFailure"]
    plane.until(lambda: len(plane.pods()) == 1)  # the pod on the deleted node is removed
    check_consistency(plane)


def test_cordoned_node_keeps_its_runs_and_gets_no_new_ones(plane: Plane) -> None:
    plane.kubelets.add("n1", "n2")
    plane.controller()
    _running(plane, job("first", 8))
    [pod] = plane.pods()
    node = pod["spec"]["nodeName"]
    other = ({"n1", "n2"} - {node}).pop()
    plane.kubectl.ok("cordon", node, other)
    plane.kubectl.ok("apply", "-f", plane.kubectl.file(job("second", 8)))
    plane.until(lambda: bool(plane.run("second").get("status")))
    assert plane.run("second")["status"]["phase"] == "Pending"
    assert plane.run("first")["status"]["phase"] == "Running"
    plane.kubectl.ok("uncordon", other)
    plane.until_phase("second", "Running")
    check_consistency(plane)


def test_deleted_leases_stay_and_are_closed_normally(plane: Plane) -> None:
    plane.kubelets.add("n1", "n2")
    controller = plane.controller("first")
    _running(plane, job("ends", 8), job("goes-on", 8))
    for lease in plane.all("leases"):
        path = f"/apis/{API}/leases/{lease['metadata']['name']}"
        assert plane.cluster.client.ask("DELETE", path).status == 200
    plane.exit_all(plane.run("ends")["metadata"]["uid"])
    plane.until_phase("ends", "Completed")
    assert _closed(plane) == ["Completed"]
    controller.stop()
    second = plane.controller("second")
    plane.until(lambda: "tenure gained" in second.log())
    plane.exit_all(plane.run("goes-on")["metadata"]["uid"])
    plane.until_phase("goes-on", "Completed")
    assert _closed(plane) == ["Completed", "Completed"]
    check_consistency(plane)


def test_run_starts_again_when_kubelet_rejects_its_pod(
    plane: Plane,
) -> None:
    """The kubelet rejects our pod, and the run starts again later."""
    plane.kubelets.add("n1")
    plane.controller()
    plane.kubelets.to_machines(lambda fleet: fleet.reject_starts(1))
    _running(plane, job("train", 8))
    assert _closed(plane) == ["Fail"]
    assert plane.run("train")["status"]["attempt"] == 2
    check_consistency(plane)


def test_definitions_can_be_upgraded_while_runs_go_on(plane: Plane) -> None:
    plane.kubelets.add("n1", "n2")
    plane.controller()
    _running(plane, job("before", 8))
    plane.cluster.install()
    plane.kubectl.ok("apply", "-f", plane.kubectl.file(job("after", 8)))
    plane.until_phase("after", "Running")
    assert plane.run("before")["status"]["phase"] == "Running"
    check_consistency(plane)
