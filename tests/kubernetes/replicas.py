"""Several controllers on one cluster, and which of them leads."""

from typing import Any

from tests.kubernetes.plane import Controller, Plane


def start(plane: Plane, *names: str) -> dict[str, Controller]:
    """Start controllers one by one; the first has the tenure before the second starts."""
    found = {}
    for name in names:
        found[name] = plane.controller(name)
        plane.until(lambda: bool(holder(plane)))
    return found


def holder(plane: Plane) -> str:
    """Return the name of the replica that has the tenure, or an empty string."""
    held = _tenure(plane).get("holderIdentity") or ""
    return str(held.rpartition("_")[0])


def renewed(plane: Plane) -> str:
    """Return when the tenure was last renewed, as a text that sorts by time."""
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
