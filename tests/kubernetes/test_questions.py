"""`kubectl runs` against a cluster: the API server says who asks, and passes the question on."""

import json
from collections.abc import Iterator

import pytest
from tests.kubernetes.plane import Plane, budget, free_port, job

SERVICES = "/api/v1/namespaces/leasehold-system/services"
API_SERVICE = "/apis/apiregistration.k8s.io/v1/apiservices/v1.query.rq.davidlangworthy.io"
RBAC = "/apis/rbac.authorization.k8s.io/v1"


@pytest.fixture
def asked(plane: Plane) -> Iterator[Plane]:
    """One Run under way, and a controller that answers."""
    port, ask = free_port(), plane.cluster.client.ask
    ask("POST", SERVICES, {
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "leasehold-query"},
        "spec": {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": port}]},
    })  # fmt: skip
    for name, role, where in (("ann", "leasehold-researcher", "team"),
                              ("vic", "leasehold-viewer", "other")):  # fmt: skip
        group = "rbac.authorization.k8s.io"
        ask("POST", f"{RBAC}/namespaces/{where}/rolebindings", {
            "apiVersion": f"{group}/v1", "kind": "RoleBinding", "metadata": {"name": f"q-{name}"},
            "subjects": [{"apiGroup": group, "kind": "User", "name": name}],
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
        })  # fmt: skip
        ask("POST", f"{RBAC}/clusterrolebindings", {
            "apiVersion": f"{group}/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": f"q-{name}"},
            "subjects": [{"apiGroup": group, "kind": "User", "name": name}],
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "leasehold-asker"},
        })  # fmt: skip
    plane.kubelets.add("n1")
    plane.controller("a", "--questions", f"127.0.0.1:{port}")
    plane.kubectl.ok("apply", "-f", plane.kubectl.file(budget(), job("train", 8)))
    plane.until_phase("train", "Running")
    plane.until(lambda: _is_available(plane))
    yield plane
    ask("DELETE", API_SERVICE)
    ask("DELETE", f"{SERVICES}/leasehold-query")


def _is_available(plane: Plane) -> bool:
    found = plane.get(API_SERVICE).get("status", {}).get("conditions", [])
    return any(each["type"] == "Available" and each["status"] == "True" for each in found)


def test_questions_are_answered_with_the_callers_own_rights(asked: Plane) -> None:
    found = asked.leasehold("runs", "who-pays", "train", "-n", "team", "-o", "json")
    assert json.loads(found.stdout)["question"] == "who-pays", found.stderr
    for words in (
        ("list", "-n", "team"), ("explain", "train", "-n", "team"), ("leases", "-n", "team"),
        ("budgets", "usage"), ("pods", "train", "-n", "team"),
        ("report", "gpu-hours", "--by", "owner"),
    ):  # fmt: skip
        answer = asked.leasehold("runs", *words, user="ann")
        assert answer.returncode == 0, (words, answer.stderr)
    assert "train" in asked.leasehold("runs", "list", "-n", "team", user="ann").stdout
    # Another tenant's.
    refused = asked.leasehold("runs", "explain", "train", "-n", "team", user="vic")
    assert refused.returncode != 0
    assert "team" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_nobody_else_may_speak_for_others(asked: Plane) -> None:
    """A caller whom the API server does not let ask never reaches us."""
    asked.cluster.client.ask("DELETE", f"{RBAC}/clusterrolebindings/q-vic")

    def is_refused() -> bool:
        answer = asked.leasehold("runs", "list", "-n", "other", user="vic")
        return answer.returncode != 0 and "query.rq.davidlangworthy.io" in answer.stderr

    asked.until(is_refused)
