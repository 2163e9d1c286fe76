"""A pod template is tried by the API server before its Run is considered."""

import json
from typing import Any

from tests.kubernetes.plane import API, Plane, budget, job

NAMESPACES = "/api/v1/namespaces"
MERGE = {"Content-Type": "application/merge-patch+json"}


def _patched(plane: Plane, path: str, change: object) -> None:
    plane.cluster.client.ask("PATCH", path, json.dumps(change).encode(), headers=MERGE)


def _run(plane: Plane, namespace: str, name: str) -> Any:
    return plane.get(f"/apis/{API}/namespaces/{namespace}/runs/{name}").get("status", {})


def _in(namespace: str, *documents: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {**each, "metadata": {**each["metadata"], "namespace": namespace}} for each in documents
    ]


def test_a_template_that_the_server_refuses_gets_no_lease_and_is_told_why(plane: Plane) -> None:
    plane.cluster.namespace("strict")
    enforce = {"pod-security.kubernetes.io/enforce": "baseline"}
    _patched(plane, f"{NAMESPACES}/strict", {"metadata": {"labels": enforce}})
    plane.kubelets.add("n1")
    controller = plane.controller("first")
    bad = job("bad", 8)
    bad["spec"]["template"]["spec"]["hostNetwork"] = True  # type: ignore[index]
    plane.kubectl.ok("apply", "-f", plane.kubectl.file(*_in("strict", budget(), bad)))
    plane.until(lambda: "violates PodSecurity" in _run(plane, "strict", "bad").get("message", ""))
    assert plane.all("leases") == []
    # Another one does not try its luck either.
    controller.stop()
    second = plane.controller("second")
    plane.until(lambda: "contained" in second.log())
    assert plane.all("leases") == []
    assert "asked again after a pause" in _run(plane, "strict", "bad")["message"]
    # Nobody touches the Run: what the server refuses today it may allow tomorrow.
    allow = {"pod-security.kubernetes.io/enforce": None}
    _patched(plane, f"{NAMESPACES}/strict", {"metadata": {"labels": allow}})
    plane.until(lambda: _run(plane, "strict", "bad").get("phase") == "Running")
    conditions = _run(plane, "strict", "bad")["conditions"]
    assert "Quarantined" not in [each["type"] for each in conditions]


def test_what_the_server_adds_to_a_pod_counts_for_where_it_fits(plane: Plane) -> None:
    """A node has 64 CPUs; the namespace gives each container forty, whatever it asks for."""
    plane.cluster.namespace("ample")
    limits = {
        "apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "ample"},
        "spec": {"limits": [{"type": "Container", "defaultRequest": {"cpu": "40"}}]},
    }  # fmt: skip
    plane.cluster.client.ask("POST", f"{NAMESPACES}/ample/limitranges", limits)
    plane.kubelets.add("n1")
    controller = plane.controller("first")
    jobs = [job("first", 4), job("second", 4)]
    plane.kubectl.ok("apply", "-f", plane.kubectl.file(*_in("ample", budget(), jobs[0])))
    plane.until(lambda: _run(plane, "ample", "first").get("phase") == "Running")
    [pod] = plane.pods("ample")
    assert pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "40"
    plane.kubectl.ok("apply", "-f", plane.kubectl.file(*_in("ample", jobs[1])))
    plane.until(lambda: bool(_run(plane, "ample", "second")))
    assert _run(plane, "ample", "second")["phase"] == "Pending"
    assert _run(plane, "ample", "second")["podRequests"]["cpu"] == "40"
    assert len(plane.all("leases")) == 1
    # A successor reads it from the Run, and does not try everything again before it decides.
    controller.stop()
    plane.controller("second")
    plane.kubectl.ok("apply", "-f", plane.kubectl.file(*_in("ample", job("third", 4))))
    plane.until(lambda: bool(_run(plane, "ample", "third")))
    assert len(plane.all("leases")) == 1


def test_a_gang_that_its_namespaces_quota_can_never_hold_gets_no_lease(plane: Plane) -> None:
    """One pod of it is allowed, and sixteen GPUs never are; half a gang is bound by nobody."""
    plane.cluster.namespace("tight")
    quota = {
        "apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "gpus"},
        "spec": {"hard": {"requests.nvidia.com/gpu": "8", "pods": "5"}},
    }  # fmt: skip
    path = f"{NAMESPACES}/tight/resourcequotas"
    assert plane.cluster.client.ask("POST", path, quota).status == 201
    # Nobody counts here what is used, as a cluster's quota controller does.
    used = {"hard": quota["spec"]["hard"], "used": {"requests.nvidia.com/gpu": "0", "pods": "0"}}  # type: ignore[index]
    _patched(plane, f"{path}/gpus/status", {"status": used})
    plane.kubelets.add("n1", "n2")
    plane.controller()
    jobs = [job("wide", 16), job("narrow", 8)]
    plane.kubectl.ok("apply", "-f", plane.kubectl.file(*_in("tight", budget(), *jobs)))
    plane.until(lambda: _run(plane, "tight", "narrow").get("phase") == "Running")
    plane.until(lambda: "ResourceQuota gpus" in _run(plane, "tight", "wide").get("message", ""))
    said = _run(plane, "tight", "wide")["message"]
    assert "allows 8 of requests.nvidia.com/gpu, but the 2 pods of the Run need 16 together" in said
    assert {each["spec"]["runRef"]["name"] for each in plane.all("leases")} == {"narrow"}
    # Raised, and the Run touched: it is tried again.
    _patched(plane, f"{path}/gpus", {"spec": {"hard": {"requests.nvidia.com/gpu": "32"}}})
    raised = {"requests.nvidia.com/gpu": "32", "pods": "5"}
    _patched(plane, f"{path}/gpus/status", {"status": {"hard": raised}})
    wide = f"/apis/{API}/namespaces/tight/runs/wide"
    _patched(plane, wide, {"metadata": {"labels": {"again": "yes"}}})
    plane.until(lambda: "Quarantined" not in str(_run(plane, "tight", "wide").get("conditions")))
    plane.cluster.client.ask("DELETE", f"{path}/gpus")
    for name in ("wide", "narrow"):
        plane.kubectl.ok("delete", "run", name, "-n", "tight", "--wait=false")
