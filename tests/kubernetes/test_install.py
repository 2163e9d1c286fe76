"""What `leasehold install` puts on a cluster, and what `--remove` takes away."""

from pathlib import Path

import yaml
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.plane import RUNS, Plane, job

POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
API_SERVICE = "/apis/apiregistration.k8s.io/v1/apiservices"


def test_install_dry_run_prints_every_kind(plane: Plane) -> None:
    printed = plane.leasehold("install", "--dry-run", "--image", "example/leasehold:1").stdout
    kinds = [each["kind"] for each in yaml.safe_load_all(printed)]
    assert kinds[0] == "Namespace"
    assert {"CustomResourceDefinition", "ClusterRole", "ValidatingAdmissionPolicy", "Deployment",
            "PodDisruptionBudget", "PriorityClass", "FlowSchema"} <= set(kinds)  # fmt: skip
    # A real server accepts the same manifests twice.
    for _ in range(2):
        applied = plane.leasehold("install", "--image", "example/leasehold:1")
        assert applied.returncode == 0, applied.stderr


def test_install_remove_deletes_policies_and_finalizers_but_keeps_ledger(plane: Plane) -> None:
    asks = plane.cluster.client.ask
    name = "v1.query.rq.davidlangworthy.io"
    asks("POST", API_SERVICE, {
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": {"name": name},
        "spec": {"group": name[3:], "version": "v1", "groupPriorityMinimum": 1000,
                 "versionPriority": 10, "insecureSkipTLSVerify": True,
                 "service": {"namespace": "leasehold-system", "name": "leasehold-query"}},
    })  # fmt: skip
    asks("POST", RUNS, job("held", 8))
    try:
        removed = plane.leasehold("install", "--remove")
        assert removed.returncode == 0, removed.stderr
        assert asks("GET", f"{API_SERVICE}/{name}").status == 404
        assert not [each for each in plane.get(POLICIES)["items"]
                    if each["metadata"]["name"].startswith("leasehold")]  # fmt: skip
        assert "finalizers" not in plane.run("held")["metadata"]
        assert plane.all("leases") == []  # the definitions are still there
        again = plane.leasehold("install", "--remove")
        assert again.returncode == 0, again.stderr
    finally:
        plane.cluster.install()


def test_install_remove_ledger_deletes_every_definition(
    own_cluster: Cluster, tmp_path: Path
) -> None:
    """Objects of the ledger have finalizers, and no controller is left to remove them."""
    own_cluster.install()
    plane = Plane(own_cluster, tmp_path)
    plane.controller("a")
    plane.until(lambda: plane.all("ledgerheads") != [])
    head = plane.all("ledgerheads")[0]["metadata"]
    assert head["finalizers"] == ["rq.davidlangworthy.io/archived"]
    plane.stop()
    removed = plane.leasehold("install", "--remove", "--remove-ledger", "--yes")
    assert removed.returncode == 0, removed.stderr
    plane.until(lambda: not _definitions(plane))


def _definitions(plane: Plane) -> list[str]:
    listed = plane.get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions")["items"]
    names = [str(each["metadata"]["name"]) for each in listed]
    return [each for each in names if each.endswith(".rq.davidlangworthy.io")]
