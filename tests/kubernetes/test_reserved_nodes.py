"""Nodes with our taint: other schedulers leave them alone, we do not, and spares lie only there."""

from tests.kubernetes.plane import Plane, budget, job
from tests.kubernetes.replicas import bound
from tests.kubernetes.wellbeing import all_is_well

TAINT = "rq.davidlangworthy.io/fleet"


def _leases(plane: Plane, role: str) -> set[str]:
    """The nodes of those that are open."""
    return {
        each["spec"]["slice"]["node"]
        for each in plane.all("leases")
        if each["spec"]["slice"]["role"] == role and not each.get("status", {}).get("closed")
    }


def test_a_node_that_others_are_kept_away_from_takes_our_work(plane: Plane) -> None:
    plane.kubelets.add("n1", reserved=True)
    plane.controller()
    plane.kubectl.ok("apply", "-f", plane.kubectl.file(budget(), job("train", 8)))
    plane.until_phase("train", "Running")
    assert [pod["spec"]["nodeName"] for pod in bound(plane)] == ["n1"]
    keys = [each["key"] for each in bound(plane)[0]["spec"]["tolerations"]]
    assert TAINT in keys
    all_is_well(plane)


def test_spares_lie_only_there_and_who_finds_none_is_told(plane: Plane) -> None:
    plane.kubelets.add("n1", "n2")
    plane.controller()
    plane.kubectl.ok("apply", "-f", plane.kubectl.file(budget(), job("train", 8, sparesPerGroup=8)))
    plane.until(lambda: "NoPlaceForSpares" in str(plane.run("train").get("status")))
    said = str(plane.run("train")["status"])
    assert f"{TAINT}, which 0 of 2 nodes with H100-80GB have" in said
    assert plane.all("leases") == []
    plane.kubectl.ok("taint", "node", "n1", f"{TAINT}=:NoSchedule")
    plane.until_phase("train", "Running")
    assert (_leases(plane, "Spare"), _leases(plane, "Active")) == ({"n1"}, {"n2"})
    all_is_well(plane)
