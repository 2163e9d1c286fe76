"""A pod template is tried by the API server before its Run is considered."""

import json
from typing import Any

from tests.kubernetes.plane import API, Plane, budget, job

NAMESPACES = "/api/v1/namespaces"
MERGE = {"Content-Type": "application/merge-patch+json"}


def _patch(plane: Plane, path: str, change: object) -> None:
    plane.cluster.client.ask("PATCH", path, json.dumps(change).encode(), headers=MERGE)


def _run_status(plane: Plane, namespace: str, name: str) -> Any:
    return plane.get(f"/apis/{API}/namespaces/{namespace}/runs/{name}").get("status", {})


def _in_namespace(namespace: str, *documents: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {**each, "metadata": {**each["metadata"], "namespace": namespace}} for each in documents
    ]


def test_run_with_refused_template_gets_no_lease_and_shows_why(plane: Plane) -> None:
    plane.cluster.namespace("strict")
    enforce = {"pod-security.kubernetes.io/enforce": "baseline"}
    _patch(plane, f"{NAMESPACES}/strict", {"metadata": {"labels": enforce}})
    plane.kubelets.add("n1")
    controller = plane.controller("first")
    bad = job("bad", 8)
    bad["spec"]["template"]["spec"]["hostNetwork"] = True  # type: ignore[index]
    plane.kubectl.ok("apply", "-f", plane.kubectl.file(*_in_namespace("strict", budget(), bad)))
    plane.until(
        lambda: "violates PodSecurity" in _run_status(plane, "strict", "bad").get("message", "")
    )
    assert plane.all("leases") == []
    # The next leader does not start the Run either.
    controller.stop()
    second = plane.controller("second")
    plane.until(lambda: "contained" in second.log())
    assert plane.all("leases") == []
    assert "tries again after a pause" in _run_status(plane, "strict", "bad")["message"]
    # The Run is not edited: the API server may later allow what it has refused.
    allow = {"pod-security.kubernetes.io/enforce": None}
    _patch(plane, f"{NAMESPACES}/strict", {"metadata": {"labels": allow}})
    plane.until(lambda: _run_status(plane, "strict", "bad").get("phase") == "Running")
    conditions = _run_status(plane, "strict", "bad")["conditions"]
    assert "Quarantined" not in [each["type"] for each in conditions]


def test_requests_added_by_limit_range_count_for_placement(plane: Plane) -> None:
    """A node has 64 CPUs; the namespace's LimitRange gives each container 40."""
    plane.cluster.namespace("ample")
    limits = {
        "apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "ample"},
        "spec": {"limits": [{"type": "Container", "defaultRequest": {"cpu": "40"}}]},
    }  # fmt: skip
    plane.cluster.client.ask("POST", f"{NAMESPACES}/ample/limitranges", limits)
    plane.kubelets.add("n1")
    controller = plane.controller("first")
    jobs = [job("first", 4), job("second", 4)]
    plane.kubectl.ok("apply", "-f", plane.kubectl.file(*_in_namespace("ample", budget(), jobs[0])))
    plane.until(lambda: _run_status(plane, "ample", "first").get("phase") == "Running")
    [pod] = plane.pods("ample")
    assert pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "40"
    plane.kubectl.ok("apply", "-f", plane.kubectl.file(*_in_namespace("ample", jobs[1])))
    plane.until(lambda: bool(_run_status(plane, "ample", "second")))
    assert _run_status(plane, "ample", "second")["phase"] == "Pending"
    assert _run_status(plane, "ample", "second")["podRequests"]["cpu"] == "40"
    assert len(plane.all("leases")) == 1
    # The next leader reads the pod's requests from the Run and need not try the template again.
    controller.stop()
    plane.controller("second")
    plane.kubectl.ok("apply", "-f", plane.kubectl.file(*_in_namespace("ample", job("third", 4))))
    plane.until(lambda: bool(_run_status(plane, "ample", "third")))
    assert len(plane.all("leases")) == 1


def test_gang_larger_than_its_namespace_quota_gets_no_lease(plane: Plane) -> None:
    """The quota allows one pod of the gang, but never 16 GPUs. No half of a gang is bound."""
    plane.cluster.namespace("tight")
    quota = {
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "gpus"},
        "spec": {"hard": {"requests.nvidia.com/gpu": "8", "pods": "5"}},
    }  # fmt: skip
    path = f"{NAMESPACES}/tight/resourcequotas"
    assert plane.cluster.client.ask("POST", path, quota).status == 201
    # This cluster has no quota controller, which would count what is used.
    used = {"hard": quota["spec"]["hard"], "used": {"requests.nvidia.com/gpu": "0", "pods": "0"}}  # type: ignore[index]
    _patch(plane, f"{path}/gpus/status", {"status": used})
    plane.kubelets.add("n1", "n2")
    plane.controller()
    jobs = [job("wide", 16), job("narrow", 8)]
    plane.kubectl.ok("apply", "-f", plane.kubectl.file(*_in_namespace("tight", budget(), *jobs)))
    plane.until(lambda: _run_status(plane, "tight", "narrow").get("phase") == "Running")
    plane.until(
        lambda: "ResourceQuota gpus" in _run_status(plane, "tight", "wide").get("message", "")
    )
    said = _run_status(plane, "tight", "wide")["message"]
    assert "allows 8 of requests.nvidia.com/gpu, but the 2 pods of the Run need 16 together" in said
    assert {each["spec"]["runRef"]["name"] for each in plane.all("leases")} == {"narrow"}
    # After the quota is raised and the Run edited, the template is tried again.
    _patch(plane, f"{path}/gpus", {"spec": {"hard": {"requests.nvidia.com/gpu": "32"}}})
    raised = {"requests.nvidia.com/gpu": "32", "pods": "5"}
    _patch(plane, f"{path}/gpus/status", {"status": {"hard": raised}})
    wide = f"/apis/{API}/namespaces/tight/runs/wide"
    _patch(plane, wide, {"metadata": {"labels": {"again": "yes"}}})
    plane.until(
        lambda: "Quarantined" not in str(_run_status(plane, "tight", "wide").get("conditions"))
    )
    plane.cluster.client.ask("DELETE", f"{path}/gpus")
    for name in ("wide", "narrow"):
        plane.kubectl.ok("delete", "run", name, "-n", "tight", "--wait=false")
