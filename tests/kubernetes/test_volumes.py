"""Volumes: pods are placed where their volumes can be reached, and a claim that waits for its
first consumer is refused."""

import json
from typing import Any

from tests.kubernetes.plane import Plane, budget, job
from tests.kubernetes.replicas import bound, holder
from tests.kubernetes.wellbeing import check_consistency

CLAIMS = "/api/v1/namespaces/team/persistentvolumeclaims"
VOLUMES = "/api/v1/persistentvolumes"
CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
SIZE = {"storage": "1Gi"}


def _volume(name: str, *terms: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
        "spec": {"capacity": SIZE, "accessModes": ["ReadWriteOnce"], "local": {"path": "/data"},
                 "nodeAffinity": {"required": {"nodeSelectorTerms": terms}}},
    }  # fmt: skip


def _claim(name: str, volume: str = "", storage_class: str = "") -> dict[str, Any]:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": SIZE},
            "storageClassName": storage_class}  # fmt: skip
    return {
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name},
        "spec": {**spec, "volumeName": volume} if volume else spec,
    }  # fmt: skip


def _create(plane: Plane, path: str, body: dict[str, Any]) -> None:
    answer = plane.cluster.client.ask("POST", path, body)
    assert answer.status == 201, answer.body


def _job_with_claims(name: str, *claims: str) -> dict[str, Any]:
    run: dict[str, Any] = job(name, 8)
    run["spec"]["template"]["spec"]["volumes"] = [
        {"name": f"v{number}", "persistentVolumeClaim": {"claimName": claim}}
        for number, claim in enumerate(claims)
    ]
    return run


def _pods_of(plane: Plane, run: str) -> list[Any]:
    return [pod for pod in bound(plane) if pod["metadata"]["name"].startswith(f"{run}-")]


def _delete(plane: Plane, *paths: str) -> None:
    """Delete objects and remove the finalizers that protect them while they are in use.

    No controller of this cluster removes them.
    """
    free = json.dumps({"metadata": {"finalizers": None}}).encode()
    for path in paths:
        plane.cluster.client.ask("DELETE", path)
        headers = {"Content-Type": "application/merge-patch+json"}
        plane.cluster.client.ask("PATCH", path, free, headers=headers)


def test_pod_is_placed_on_node_that_reaches_all_its_volumes(plane: Plane) -> None:
    plane.kubelets.add("n1", "n2", "n3")
    fabric = {"key": "fabric.domain", "operator": "In", "values": ["a"]}
    third = {"key": "metadata.name", "operator": "In", "values": ["n3"]}
    _create(plane, VOLUMES, _volume("here", {"matchExpressions": [fabric]}))
    _create(plane, VOLUMES, _volume("there", {"matchFields": [third]}))
    for name in ("here", "there"):
        _create(plane, CLAIMS, _claim(name, name))
    first = plane.controller("first")
    runs = [_job_with_claims("one", "here", "there"), _job_with_claims("two", "there")]
    runs[1]["spec"]["runtime"] = {"checkpoint": "1m"}
    plane.kubectl.ok("apply", "-f", plane.kubectl.file(budget(), runs[0]))
    plane.until_phase("one", "Running")
    assert [pod["spec"]["nodeName"] for pod in bound(plane)] == ["n3"]
    plane.kubectl.ok("apply", "-f", plane.kubectl.file(runs[1]))
    plane.until(lambda: "reachable from 1 node" in str(plane.run("two").get("status")))
    # The next leader reads the volumes itself, also of running Runs: they may be placed again.
    assert first.stop() == 0
    second = plane.controller("second")
    plane.exit_all(plane.run("one")["metadata"]["uid"])
    plane.until_phase("two", "Running")
    assert second.stop() == 0
    third = plane.controller("third")
    plane.until(lambda: holder(plane) == "third")
    [pod] = _pods_of(plane, "two")
    plane.kubectl.ok("delete", "pod", pod["metadata"]["name"], "-n", "team", "--wait=false")
    plane.until(lambda: plane.run("two")["status"]["attempt"] == 2)
    plane.until_phase("two", "Running")
    assert {pod["spec"]["nodeName"] for pod in _pods_of(plane, "two")} == {"n3"}
    assert "was edited" not in third.log()
    check_consistency(plane)
    plane.stop_controllers()
    _delete(plane, *(f"{CLAIMS}/{each}" for each in ("here", "there")),
          *(f"{VOLUMES}/{each}" for each in ("here", "there")))  # fmt: skip


def test_claim_waiting_for_first_consumer_is_refused_with_field_path(plane: Plane) -> None:
    late = {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "late"},
            "provisioner": "none", "volumeBindingMode": "WaitForFirstConsumer"}  # fmt: skip
    _create(plane, CLASSES, late)
    _create(plane, CLAIMS, _claim("later", storage_class="late"))
    plane.kubelets.add("n1")
    plane.controller()
    plane.kubectl.ok(
        "apply", "-f", plane.kubectl.file(budget(), _job_with_claims("train", "later"))
    )
    plane.until(lambda: "first consumer" in str(plane.run("train").get("status")))
    said = plane.run("train")["status"]["message"]
    assert "spec.template.spec.volumes[0].persistentVolumeClaim" in said
    assert "the claim later is not bound" in said
    assert plane.all("leases") == []
    plane.stop_controllers()
    _delete(plane, f"{CLAIMS}/later", f"{CLASSES}/late")
