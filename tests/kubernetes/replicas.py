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
    path = "/apis/coordination.k8s.io/v1/namespaces/leasehold-system/leases"
    for each in plane.get(path)["items"]:
        held = each["spec"].get("holderIdentity") or ""
        return str(held.rpartition("_")[0])
    return ""


def bound(plane: Plane) -> list[Any]:
    return [pod for pod in plane.pods() if pod["spec"].get("nodeName")]


def epoch(plane: Plane) -> int:
    return max([0, *(int(each["spec"]["epoch"]) for each in plane.all("ledgerheads"))])
