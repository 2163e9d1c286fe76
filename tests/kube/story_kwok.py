"""A fleet of nodes simulated by kwok, an independent program: gangs start and end while the leader
is killed and nodes are deleted."""

import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.apiserver.server import program
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.conftest import SETTINGS
from tests.kubernetes.plane import Plane, budget, job, plane_on
from tests.kubernetes.replicas import holder, start

NODES = 150
STAGES = Path(__file__).parent / "kwok.yaml"
GANGS = (1, 2, 4, 8, 16, 32, 64, 3, 5, 7, 24, 48)  # pods of eight GPUs; 214, for 150 nodes
GPUS = 8


@pytest.fixture
def plane(cluster: Cluster, tmp_path: Path) -> Iterator[Plane]:
    """A control plane whose nodes are simulated by kwok."""
    cluster.install()
    with (tmp_path / "kwok.log").open("w") as log:
        process = subprocess.Popen(
            [program("kwok"), "--kubeconfig", str(cluster.kubeconfig()), "--manage-all-nodes",
             "--config", str(STAGES)],
            stdout=log, stderr=log,
        )  # fmt: skip
    try:
        with plane_on(cluster, tmp_path, SETTINGS) as found:
            for number in range(NODES):
                _node(found, f"k{number:03d}")
            yield found
    finally:
        process.kill()
        process.wait()


def _node(plane: Plane, name: str) -> None:
    labels = {"region": "us", "cluster": "gpu-a", "fabric.domain": "a", "gpu.flavor": "H100-80GB"}
    body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}
    assert plane.cluster.client.ask("POST", "/api/v1/nodes", body).status == 201
    # No controller of this cluster removes the taint that a new node gets.
    patch = {"Content-Type": "application/merge-patch+json"}
    path = f"/api/v1/nodes/{name}"
    plane.cluster.client.ask("PATCH", path, b'{"spec":{"taints":null}}', headers=patch)


def _crowded(plane: Plane) -> list[str]:
    """Return the nodes with more GPUs in use than they have."""
    used: Counter[str] = Counter()
    for pod in plane.pods():
        if pod["spec"].get("nodeName") and pod["status"]["phase"] in ("Pending", "Running"):
            used[pod["spec"]["nodeName"]] += GPUS
    return [name for name, gpus in used.items() if gpus > GPUS]


@pytest.mark.deadline(600)
def test_gangs_complete_while_leader_is_killed_and_nodes_are_deleted(plane: Plane) -> None:
    plane.patience_s = 240
    replicas = start(plane, "a", "b", "c")
    plane.until(lambda: len(plane.get("/api/v1/nodes")["items"]) == NODES)
    names = [f"gang-{number}" for number in range(len(GANGS))]
    runs = [
        job(name, GPUS * pods, locality={"groupGPUs": GPUS * pods}, runtime={"checkpoint": "1m"})
        for name, pods in zip(names, GANGS, strict=True)
    ]
    plane.kubectl.ok("apply", "-f", plane.kubectl.file(budget(gpus=GPUS * NODES), *runs))
    plane.until(lambda: len(plane.pods()) > NODES // 2)
    first = holder(plane)
    replicas[first].process.send_signal(signal.SIGKILL)
    replicas[first].process.wait()
    lost = {pod["spec"]["nodeName"] for pod in plane.pods() if pod["spec"].get("nodeName")}
    for name in sorted(lost)[:3]:
        plane.cluster.client.ask("DELETE", f"/api/v1/nodes/{name}")
    plane.until(lambda: holder(plane) not in ("", first))

    def is_over() -> bool:
        assert _crowded(plane) == []
        return all(plane.run(name).get("status", {}).get("phase") == "Completed" for name in names)

    plane.until(is_over)
    assert all(each["status"]["closed"] for each in plane.all("leases"))
    for words, said in ((("ledger", "verify"), "ledger verify: ok"), (("audit",), "audit: ok")):
        found = plane.leasehold(*words, "--kubeconfig", str(plane.cluster.kubeconfig()))
        assert found.stdout.startswith(said), found.stdout + found.stderr
