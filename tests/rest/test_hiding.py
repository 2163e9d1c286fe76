"""`query.hideTenants`: no way of reading objects reveals the leases of other tenants."""

import json
from collections.abc import Iterator

import pytest
from tests.rest.facade import ADMIN, ANN, BOB, OURS, SYSTEM, lease
from tests.rest.inprocess import InProcess

TABLE = {b"accept": b"application/json;as=Table;v=v1;g=meta.k8s.io"}
RESERVATION = {
    "apiVersion": "rq.davidlangworthy.io/v1",
    "kind": "Reservation",
    "spec": {"runRef": {"name": "r", "uid": "u"}},
}


def lease_of(name: str, namespace: str) -> dict[str, object]:
    made = lease(name)
    spec = made["spec"]
    assert isinstance(spec, dict)
    spec["runRef"] = {**spec["runRef"], "namespace": namespace}
    return made


@pytest.fixture
def server() -> Iterator[InProcess]:
    """Start a server that hides tenants: Ann belongs to vision, Bob to audio."""
    made = InProcess(hides_tenants=True)
    put(made, "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace",
                                     "metadata": {"name": "vision"}})  # fmt: skip
    put(made, "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace",
                                     "metadata": {"name": "audio"}})  # fmt: skip
    put(made, f"{OURS}/leases", lease_of("mine", "vision"))
    put(made, f"{OURS}/leases", lease_of("theirs", "audio"))
    for namespace in ("vision", "audio"):
        metadata = {"name": f"of-{namespace}", "namespace": namespace}
        where = f"{OURS}/namespaces/{namespace}/reservations"
        put(made, where, {**RESERVATION, "metadata": metadata})
        status = {"status": {"state": "Pending", "odds": [{"run": "audio/x", "percent": 50}]}}
        patched = made.ask(
            "PATCH",
            f"{where}/of-{namespace}/status".encode(),
            json.dumps(status).encode(),
            headers={b"content-type": b"application/merge-patch+json"},
        )
        assert patched.status == 200, patched.body
    yield made
    made.close()


def put(server: InProcess, path: str, obj: object) -> None:
    made = server.ask("POST", path.encode(), json.dumps(obj).encode(), caller=SYSTEM)
    assert made.status == 201, made.body


def names(body: bytes) -> list[str]:
    return [each["metadata"]["name"] for each in json.loads(body)["items"]]


def test_lists_omit_leases_of_other_tenants(server: InProcess) -> None:
    path = f"{OURS}/leases".encode()
    assert names(server.ask("GET", path, caller=ANN).body) == ["mine"]
    assert names(server.ask("GET", path, caller=BOB).body) == ["theirs"]
    assert names(server.ask("GET", path, caller=ADMIN).body) == ["mine", "theirs"]
    for query in (b"limit=1", b"limit=500", b"fieldSelector=spec.runRef.namespace%3Daudio",
                  b"fieldSelector=metadata.name%3Dtheirs"):  # fmt: skip
        assert b"theirs" not in server.ask("GET", path, query=query, caller=ANN).body
    assert b"theirs" not in server.ask("GET", path, headers=TABLE, caller=ANN).body


def test_lease_of_another_tenant_is_not_found(server: InProcess) -> None:
    found = [
        server.ask("GET", f"{OURS}/leases/{name}".encode(), caller=ANN)
        for name in ("mine", "theirs", "nobodys")
    ]
    assert [each.status for each in found] == [200, 404, 404]
    assert found[1].body.replace(b"theirs", b"nobodys") == found[2].body


def test_watch_sends_only_own_leases(server: InProcess) -> None:
    told = server.ask(
        "GET", f"{OURS}/leases".encode(), query=b"watch=true&timeoutSeconds=1", caller=ANN
    )
    assert b"mine" in told.body
    assert b"theirs" not in told.body


@pytest.mark.parametrize("kind", ["ledgerbatches", "ledgercheckpoints", "resolutions"])
def test_kinds_that_name_all_tenants_are_for_administrators_only(
    server: InProcess, kind: str
) -> None:
    for path in (f"{OURS}/{kind}", f"{OURS}/{kind}/x"):
        refused = server.ask("GET", path.encode(), caller=ANN)
        assert refused.status == 403
        assert b"query.hideTenants is on" in refused.body
        assert server.ask("GET", path.encode(), caller=ADMIN).status in (200, 404)
    watched = server.ask("GET", f"{OURS}/{kind}".encode(), query=b"watch=true", caller=ANN)
    assert watched.status == 403


def test_namespaces_reservations_and_odds_of_other_teams_are_hidden(server: InProcess) -> None:
    listed = server.ask("GET", b"/api/v1/namespaces", caller=ANN)
    assert names(listed.body) == ["vision"]
    everywhere = server.ask("GET", f"{OURS}/reservations".encode(), caller=ANN)
    assert names(everywhere.body) == ["of-vision"]
    assert b"audio" not in everywhere.body
    own = server.ask("GET", f"{OURS}/namespaces/vision/reservations/of-vision".encode(), caller=ANN)
    assert b"odds" not in own.body
    assert b"odds" in server.ask("GET", f"{OURS}/reservations".encode(), caller=ADMIN).body


def test_every_token_sees_all_leases_without_hide_tenants() -> None:
    server = InProcess()
    put(server, f"{OURS}/leases", lease_of("theirs", "audio"))
    assert names(server.ask("GET", f"{OURS}/leases".encode(), caller=ANN).body) == ["theirs"]
    assert server.ask("GET", f"{OURS}/ledgerbatches".encode(), caller=ANN).status == 200
    server.close()
