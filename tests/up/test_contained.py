"""One bad object, in a running server and at its next start: everything else continues."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
from tests.up.conftest import Servers
from tests.up.raw import BUDGETS, NODES, PODS, RUNS, Raw
from tests.up.server import Up, job, marked, team

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


@contextmanager
def client_of(server: Up) -> Iterator[Raw]:
    client = Raw(server.kubeconfig)
    try:
        yield client
    finally:
        client.close()


def tamper(server: Up, kind: str, name: str, change: dict[str, Any]) -> None:
    """Write a change that no server would accept into the store file while the server is down."""
    connection = apsw.Connection(str(server.data / "store.sqlite"))
    query = "SELECT body FROM objects WHERE kind = ? AND name = ?"
    [(body,)] = list(connection.execute(query, (kind, name)))
    obj = json.loads(body)
    obj["spec"] |= change
    obj["metadata"]["generation"] += 1
    connection.execute(
        "UPDATE objects SET body = ? WHERE kind = ? AND name = ?",
        (json.dumps(obj).encode(), kind, name),
    )
    connection.close()


def processes_of(server: Up, run: str) -> list[int]:
    """Return the processes of a run's pods; this works while the journals exist."""
    wanted = f"LEASEHOLD_RUN=team/{run}".encode()
    return [
        pid for pid in marked(server.data)
        if wanted in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    ]  # fmt: skip


def are_gone(pids: list[int]) -> bool:
    return not any(Path(f"/proc/{pid}").exists() for pid in pids)


def contained(server: Up, kind: str) -> float:
    with client_of(server) as client:
        text = str(client.ask("GET", "/metrics")[1])
    found = [
        float(line.split()[1])
        for line in text.splitlines()
        if line.startswith(f'leasehold_contained_failures_total{{kind="{kind}"}}')
    ]
    return sum(found)


def events(server: Up) -> str:
    with client_of(server) as client:
        return json.dumps(client.ask("GET", "/api/v1/namespaces/team/events")[1])


def test_stored_variable_without_source_harms_only_its_run(up: Servers) -> None:
    server = up("--gpus", "2").start()
    server.submit(*team(), job("first", "sleep 600", gpus=2))
    server.wait_phase("first", "Running")
    server.submit(job("odd", "true", gpus=2))
    server.stop()
    container = {"name": "main", "command": ["true"], "env": [{"name": "N", "valueFrom": {}}]}
    tamper(server, "Run", "odd", {"template": {"spec": {"containers": [container]}}})
    server.start()
    server.runs("cancel", "team/first")
    server.wait("its rejection", lambda: "name one source" in events(server))
    assert server.process.poll() is None
    server.kill()
    server.start()
    with client_of(server) as client:
        assert client.ask("DELETE", f"{RUNS}/odd")[0] == 200
        server.wait("its end", lambda: client.ask("GET", f"{RUNS}/odd")[0] == 404)
    server.submit(job("after", "true", gpus=2))
    server.wait_phase("after", "Completed")


def test_unreadable_run_and_budget_are_quarantined_at_restart(
    up: Servers,
) -> None:
    server = up().start()
    other = {**team()[1], "metadata": {"name": "other", "namespace": "team"}}
    other["spec"] = {"owner": "org:other", "envelopes": []}
    server.submit(*team(), other, job("odd", "sleep 600"), job("good", "sleep 600"))
    server.wait_phase("odd", "Running")
    server.wait_phase("good", "Running")
    odd = processes_of(server, "odd")
    server.kill()
    tamper(server, "Run", "odd", {"resources": "nonsense"})
    tamper(server, "Budget", "other", {"envelopes": "nonsense"})
    server.start()
    server.wait("the event", lambda: "Quarantined" in events(server))
    assert server.run("good")["phase"] == "Running"
    assert contained(server, "Run") == 1
    assert contained(server, "Budget") == 1
    with client_of(server) as client:
        for path in (f"{RUNS}/odd", f"{BUDGETS}/other"):
            server.wait("the reason", lambda p=path: "Quarantined" in str(client.ask("GET", p)[1]))
        for path in (RUNS, BUDGETS, PODS, NODES):
            status, _ = client.ask("GET", path, accept=TABLE)
            assert status == 200, path
        for path in (f"{RUNS}/odd", f"{BUDGETS}/other"):
            assert client.ask("DELETE", path)[0] == 200
            server.wait("its end", lambda p=path: client.ask("GET", p)[0] == 404)
    assert odd
    server.wait("its processes to end", lambda: are_gone(odd))
    server.submit(job("after", "true"))
    server.wait_phase("after", "Completed")
    server.cli("leasehold", "ledger", "verify", "--data", str(server.data))
    server.cli("leasehold", "audit", "--data", str(server.data))


def test_run_with_removed_journal_fails_and_its_lease_is_closed(up: Servers) -> None:
    server = up().start()
    server.submit(*team(), job("robbed", "sleep 600"), job("good", "sleep 600"))
    server.wait_phase("robbed", "Running")
    server.wait_phase("good", "Running")
    with client_of(server) as client:
        listed = client.ask("GET", PODS)[1]["items"]
    [uid] = [
        each["metadata"]["uid"] for each in listed
        if each["metadata"]["name"].startswith("robbed-")
    ]  # fmt: skip
    robbed = processes_of(server, "robbed")
    (server.data / "agent" / "pods" / uid).unlink()
    row = server.wait_phase("robbed", "Failed")
    assert "were removed while the pod ran" in server.runs(
        "explain", "team/robbed"
    ).stdout + events(server), row
    [lease] = server.rows("leases", "team/robbed")
    assert lease["closed"] == "Fail"
    assert server.run("good")["phase"] == "Running"
    assert contained(server, "Pod") == 1
    assert robbed
    assert are_gone(robbed)


def test_lost_lottery_key_is_reported_once(up: Servers) -> None:
    server = up().start()
    server.submit(*team())
    assert server.stop() == 0
    log = server.folder / "up.log"
    assert "lottery.key" not in log.read_text()
    (server.data / "lottery.key").unlink()
    server.start()
    assert "lottery.key was missing and was created again" in log.read_text()
    server.submit(job("after", "true"))
    server.wait_phase("after", "Completed")
    assert server.stop() == 0
    log.write_text("")
    server.start()
    assert "lottery.key" not in log.read_text()
