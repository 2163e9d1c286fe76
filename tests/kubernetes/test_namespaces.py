"""Deleting a namespace or a Run, with Kubernetes' own controllers at work."""

from collections.abc import Iterator

import pytest
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.plane import API, Plane, budget, job


@pytest.fixture
def cluster_at_work(installed: Cluster) -> Iterator[Cluster]:
    """A cluster with the controllers that empty namespaces and remove objects without an owner."""
    with installed.managers("namespace-controller", "garbage-collector-controller"):
        yield installed


def test_deleted_namespace_takes_its_runs_and_leaves_its_leases(
    cluster_at_work: Cluster, plane: Plane
) -> None:
    cluster_at_work.namespace("doomed")
    plane.kubelets.add("n1", "n2")
    plane.controller()
    documents = [budget(namespace="doomed"), job("train", 16)]
    for each in documents:
        each["metadata"] = {**each["metadata"], "namespace": "doomed"}  # type: ignore[dict-item]
    plane.kubectl.ok("apply", "-f", plane.kubectl.file(*documents))
    path = f"/apis/{API}/namespaces/doomed/runs/train"
    plane.until(lambda: plane.get(path).get("status", {}).get("phase") == "Running")
    services = "/api/v1/namespaces/doomed/services"
    assert len(plane.get(services)["items"]) == 1
    plane.kubectl.ok("delete", "namespace", "doomed", "--timeout=30s")
    # The records of usage outlive the namespace.
    plane.until(lambda: all(each.get("status", {}).get("closed") for each in plane.all("leases")))
    leases = plane.all("leases")
    assert [each["spec"]["runRef"]["namespace"] for each in leases] == ["doomed", "doomed"]
    found = plane.leasehold("ledger", "verify", "--kubeconfig", str(plane.cluster.kubeconfig()))
    assert found.stdout.startswith("ledger verify: ok"), found.stderr


def test_deleted_run_takes_its_pods_and_service(cluster_at_work: Cluster, plane: Plane) -> None:
    plane.kubelets.add("n1", "n2")
    plane.controller()
    plane.kubectl.ok("apply", "-f", plane.kubectl.file(budget(), job("train", 16)))
    plane.until_phase("train", "Running")
    services = "/api/v1/namespaces/team/services"
    before = {each["metadata"]["name"] for each in plane.get(services)["items"]}
    plane.kubectl.ok("delete", "run", "train", "-n", "team", "--timeout=30s")
    plane.until(lambda: not plane.pods())
    plane.until(
        lambda: {each["metadata"]["name"] for each in plane.get(services)["items"]} < before
    )
