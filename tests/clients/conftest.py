"""One real server for all clients, with objects of every possible kind."""

import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.clients.rows import NAMESPACE
from tests.up.server import Up, job, team

OVER = 8  # ended runs, whose pods may be deleted
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def server() -> Iterator[Up]:
    with tempfile.TemporaryDirectory(prefix="leasehold-clients-", ignore_cleanup_errors=True) as at:
        Path(at).chmod(0o755)
        fleet = Path(at) / "fleet.yaml"
        row = "flavor: virtual, region: r, cluster: c"
        fleet.write_text(f"fleet: [{{domain: a, nodes: 6, gpus: 1, {row}}}]\n")
        up = Up(Path(at), "--fleet", str(fleet)).start()
        try:
            over = [job(f"over-{index}", "true") for index in range(OVER)]
            up.submit(*team(concurrency=2), job("held", "sleep 600"), *over)
            up.wait_phase("held", "Running")
            for index in range(OVER):
                up.wait_phase(f"over-{index}", "Completed")
            up.submit(job("waits", "true", gpus=1, pods=6))
            up.wait("a reservation", lambda: bool(up.rows("reservations", "-n", NAMESPACE)))
            yield up
        finally:
            up.end()


@pytest.fixture
def existing(server: Up) -> dict[str, str]:
    """Return the name of an existing object by kind, and of a Node and Pod that may be deleted."""
    found = {}
    pods = f"/api/v1/namespaces/{NAMESPACE}/pods?fieldSelector=status.phase%3DSucceeded"
    found["Pod to go"] = listed(server, pods)[0]
    found["Node to go"] = listed(server, "/api/v1/nodes")[-1]
    paths = {
        "Pod": f"/api/v1/namespaces/{NAMESPACE}/pods",
        "Node": "/api/v1/nodes",
        "Event": f"/api/v1/namespaces/{NAMESPACE}/events",
        "Lease": "/apis/rq.davidlangworthy.io/v1/leases",
        "LedgerHead": "/apis/rq.davidlangworthy.io/v1/ledgerheads",
        "LedgerBatch": "/apis/rq.davidlangworthy.io/v1/ledgerbatches",
        "Reservation": f"/apis/rq.davidlangworthy.io/v1/namespaces/{NAMESPACE}/reservations",
    }
    for kind, path in paths.items():
        items = listed(server, path)
        assert items, kind
        found[kind] = items[0]
    return found


def listed(server: Up, path: str) -> list[str]:
    from leasehold.cli.runs.server import connect

    connection = connect(str(server.kubeconfig))
    try:
        items = connection.send("GET", path)["items"]
    finally:
        connection.close()
    assert isinstance(items, list)
    return [str(each["metadata"]["name"]) for each in items]


@pytest.fixture(scope="session")
def go_client() -> Path:
    built = subprocess.run(
        [str(ROOT / "tools" / "kube" / "build"), "informer"],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return Path(built.stdout.strip())


@pytest.fixture(scope="session")
def kubectl_path() -> Path:
    built = subprocess.run(
        [str(ROOT / "tools" / "kube" / "build"), "kubectl"],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return Path(built.stdout.strip())
