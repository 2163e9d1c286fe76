"""A controller that answers queries through the API server, and users with different rights."""

from collections.abc import Iterator
from contextlib import contextmanager

from tests.kubernetes.plane import Plane, free_port

SERVICES = "/api/v1/namespaces/leasehold-system/services"
API_SERVICE = "/apis/apiregistration.k8s.io/v1/apiservices/v1.query.rq.davidlangworthy.io"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
_GROUP = "rbac.authorization.k8s.io"


@contextmanager
def answering(plane: Plane) -> Iterator[Plane]:
    """Start a controller that answers queries, and grant users their rights.

    `ann` is a researcher of `team`, where she may spend as org:team; `vic` may view `other`.
    """
    port, ask = free_port(), plane.cluster.client.ask
    ask("POST", SERVICES, {
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "leasehold-query"},
        "spec": {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": port}]},
    })  # fmt: skip
    for name, role, where in (("ann", "leasehold-researcher", "team"),
                              ("vic", "leasehold-viewer", "other")):  # fmt: skip
        grant(plane, name, role, where)
        grant(plane, name, "leasehold-asker")
    ask("POST", f"{RBAC}/namespaces/team/roles", {
        "apiVersion": f"{_GROUP}/v1", "kind": "Role", "metadata": {"name": "q-spends"},
        "rules": [{"apiGroups": ["rq.davidlangworthy.io"], "resources": ["owners"],
                   "resourceNames": ["org:team"], "verbs": ["spend"]}],
    })  # fmt: skip
    grant(plane, "ann", "q-spends", "team", kind="Role")
    plane.controller("a", "--questions", f"127.0.0.1:{port}")
    plane.until(lambda: is_available(plane))
    try:
        yield plane
    finally:
        ask("DELETE", API_SERVICE)
        ask("DELETE", f"{SERVICES}/leasehold-query")


def is_available(plane: Plane) -> bool:
    found = plane.get(API_SERVICE)
    if found["kind"] != "APIService":
        return False
    found = found.get("status", {}).get("conditions", [])
    return any(each["type"] == "Available" and each["status"] == "True" for each in found)


def grant(
    plane: Plane, user: str, role: str, namespace: str = "", kind: str = "ClusterRole"
) -> None:
    where = f"namespaces/{namespace}/rolebindings" if namespace else "clusterrolebindings"
    plane.cluster.client.ask("POST", f"{RBAC}/{where}", {
        "apiVersion": f"{_GROUP}/v1",
        "kind": "RoleBinding" if namespace else "ClusterRoleBinding",
        "metadata": {"name": f"q-{user}-{role}"},
        "subjects": [{"apiGroup": _GROUP, "kind": "User", "name": user}],
        "roleRef": {"apiGroup": _GROUP, "kind": kind, "name": role},
    })  # fmt: skip
