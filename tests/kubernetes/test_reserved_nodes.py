"""Nodes with leasehold's taint: leasehold uses them, other schedulers do not, and spares are
placed only there."""

from tests.kubernetes.plane import Plane, budget, job
from tests.kubernetes.replicas import bound
from tests.kubernetes.wellbeing import check_consistency

TAINT = "rq.davidlangworthy.io/fleet"


def _leased_nodes(plane: Plane, role: str) -> set[str]:
    """Return the nodes of the open leases of a role."""
    return {
        each["spec"]["slice"]["node"]
        for each in plane.all("leases")
        if each["spec"]["slice"]["role"] == role and not each.get("status", {}).get("closed")
    }


def test_reserved_node_takes_leasehold_pods(plane: Plane) -> None:
    plane.kubelets.add("n1", reserved=True)
    plane.controller()
    plane.kubectl.ok("apply", "-f", plane.kubectl.file(budget(), job("train", 8)))
    plane.until_phase("train", "Running")
    assert [pod["spec"]["nodeName"] for pod in bound(plane)] == ["n1"]
    keys = [each["key"] for each in bound(plane)[0]["spec"]["tolerations"]]
    assert TAINT in keys
    check_consistency(plane)


def test_spares_use_only_reserved_nodes_and_run_without_any_says_so(plane: Plane) -> None:
    plane.kubelets.add("n1", "n2")
    plane.controller()
    plane.kubectl.ok("apply", "-f", plane.kubectl.file(budget(), job("train", 8, sparesPerGroup=8)))
    plane.until(lambda: "NoPlaceForSpares" in str(plane.run("train").get("status")))
    said = str(plane.run("train")["status"])
    assert f"{TAINT}, which 0 of 2 nodes with H100-80GB have" in said
    assert plane.all("leases") == []
    plane.kubectl.ok("taint", "node", "n1", f"{TAINT}=:NoSchedule")
    plane.until_phase("train", "Running")
    assert (_leased_nodes(plane, "Spare"), _leased_nodes(plane, "Active")) == ({"n1"}, {"n2"})
    check_consistency(plane)
