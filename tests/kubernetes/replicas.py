"""Several controllers on one cluster, and who of them decides."""

from typing import Any

from tests.kubernetes.plane import Controller, Plane


def start(plane: Plane, *names: str) -> dict[str, Controller]:
    """The first of them has tenure before the others come."""
    found = {}
    for name in names:
        found[name] = plane.controller(name)
        plane.until(lambda: bool(holder(plane)))
    return found


def holder(plane: Plane) -> str:
    """Who has tenure, by the name it was started with."""
    held = _tenure(plane).get("holderIdentity") or ""
    return str(held.rpartition("_")[0])


def renewed(plane: Plane) -> str:
    """When tenure was, last; later ones sort behind earlier ones."""
    return str(_tenure(plane).get("renewTime") or "")


def _tenure(plane: Plane) -> dict[str, Any]:
    path = "/apis/coordination.k8s.io/v1/namespaces/leasehold-system/leases"
    for each in plane.get(path)["items"]:
        spec: dict[str, Any] = each["spec"]
        return spec
    return {}


def bound(plane: Plane) -> list[Any]:
    return [pod for pod in plane.pods() if pod["spec"].get("nodeName")]


def epoch(plane: Plane) -> int:
    return max([0, *(int(each["spec"]["epoch"]) for each in plane.all("ledgerheads"))])
