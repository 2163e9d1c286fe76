"""Callers with no token, a wrong token, or a token for another namespace get nothing."""

import pytest
from tests.rest.facade import (
    ADMIN,
    ANN,
    BOB,
    BUDGETS,
    OURS,
    PODS,
    RUNS,
    SYSTEM,
    VIEWER,
    Facade,
    budget,
    node,
    pod,
    run,
)

from leasehold.core.objects.access import Caller

PATHS = (
    "/", "/api", "/apis", "/api/v1", OURS, "/version", "/metrics", "/openapi/v2", "/openapi/v3",
    "/openapi/v3/api/v1", "/api/v1/nodes", "/api/v1/namespaces", "/api/v1/pods", PODS,
    f"{PODS}/p1", f"{PODS}/p1/log", f"{PODS}/p1/log?follow=true", RUNS, f"{RUNS}/secret",
    f"{RUNS}?watch=true", f"{RUNS}/secret/status", f"{OURS}/leases", f"{OURS}/ledgerbatches",
    "/query/v1/budgets", "/no/such/path",
    "/apis/query.rq.davidlangworthy.io/v1/questions/budgets",
)  # fmt: skip
METHODS = ("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS")


@pytest.fixture(scope="module", autouse=True)
def secrets(facade: Facade) -> None:
    for path, obj in (
        (RUNS, run("secret")), (BUDGETS, budget("secret")), ("/api/v1/nodes", node("n1")),
        (PODS, pod("p1")),
    ):  # fmt: skip
        assert facade.ask("POST", path, obj, caller=SYSTEM).status == 201


@pytest.mark.parametrize(
    "token", ["", "Bearer wrong", "Bearer ", "Basic cm9vdDpyb290", "Bearer \xff"]
)
def test_request_without_valid_token_is_unauthorized_everywhere(facade: Facade, token: str) -> None:
    before = facade.store.version
    for method in METHODS:
        for path in PATHS:
            headers = {"Authorization": token} if token else {}
            body = b"{}" if method in ("POST", "PUT", "PATCH") else None
            answer = facade.ask(method, path, body, caller=None, headers=headers)
            assert answer.status == 401, (method, path)
            assert method == "HEAD" or answer.json["reason"] == "Unauthorized"
            assert b"secret" not in answer.body
    assert facade.store.version == before


def test_token_in_url_is_rejected(facade: Facade) -> None:
    token = facade.token(ADMIN)

    assert facade.ask("GET", RUNS, caller=None, token=token).status == 401
    assert facade.ask("GET", RUNS, caller=None, access_token=token).status == 401


def test_health_needs_no_token_but_hides_details_without_one(facade: Facade) -> None:
    for name in ("healthz", "livez", "readyz"):
        assert facade.ask("GET", f"/{name}", caller=None).body == b"ok"
    assert facade.ask("GET", "/readyz/store", caller=None).status == 404
    assert facade.ask("POST", "/readyz", b"{}", caller=None).status == 405
    facade.world.health["store"] = "the disk at /secret/place is full"
    try:
        told = facade.ask("GET", "/readyz", caller=None)
        known = facade.ask("GET", "/readyz", caller=ANN)
        assert facade.ask("GET", "/livez", caller=None).status == 200
    finally:
        facade.world.health["store"] = ""
    assert told.status == 503
    assert b"[-]store failed" in told.body
    assert b"secret" not in told.body
    assert b"[-]store failed: the disk at /secret/place is full" in known.body


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", RUNS), ("GET", f"{RUNS}/secret"), ("GET", f"{RUNS}?watch=true"),
        ("GET", f"{RUNS}/secret/status"), ("GET", BUDGETS), ("GET", PODS),
        ("GET", f"{PODS}/p1/log"),
        ("GET", f"{OURS}/runs"), ("GET", "/api/v1/pods"), ("GET", "/api/v1/events"),
        ("GET", "/api/v1/namespaces/vision/events"),
        ("POST", RUNS), ("PUT", f"{RUNS}/secret"), ("PATCH", f"{RUNS}/secret"),
        ("DELETE", f"{RUNS}/secret"), ("DELETE", RUNS), ("DELETE", f"{BUDGETS}/secret"),
        ("DELETE", f"{PODS}/p1"), ("POST", f"{PODS}/p1/eviction"), ("POST", f"{PODS}/p1/binding"),
        ("PATCH", "/api/v1/nodes/n1"), ("DELETE", "/api/v1/nodes/n1"),
        ("POST", "/api/v1/namespaces"), ("DELETE", "/api/v1/namespaces/vision"),
    ],
)  # fmt: skip
def test_caller_of_another_namespace_is_forbidden(facade: Facade, method: str, path: str) -> None:
    before = facade.store.version
    body = run("mine") if method in ("POST", "PUT") else {} if method == "PATCH" else None
    headers = {"Content-Type": "application/merge-patch+json"} if method == "PATCH" else None

    answer = facade.ask(method, path, body, caller=BOB, headers=headers)

    assert answer.status == 403
    assert answer.json["reason"] == "Forbidden"
    assert b"totalGPUs" not in answer.body
    assert facade.store.version == before


def test_viewer_can_read_but_not_write(facade: Facade) -> None:
    assert facade.ask("GET", f"{RUNS}/secret", caller=VIEWER).status == 200
    for method, path, body in (
        ("POST", RUNS, run("mine")), ("DELETE", f"{RUNS}/secret", None),
        ("PUT", f"{RUNS}/secret", run("secret")),
    ):  # fmt: skip
        assert facade.ask(method, path, body, caller=VIEWER).status == 403


def test_ledger_objects_and_statuses_cannot_be_written_by_users(facade: Facade) -> None:
    for caller in (ADMIN, BOB):
        for plural in ("leases", "resolutions", "ledgerheads", "ledgerbatches"):
            for method, path in (("POST", ""), ("DELETE", "/x"), ("DELETE", "")):
                body = {} if method == "POST" else None
                answer = facade.ask(method, f"{OURS}/{plural}{path}", body, caller=caller)
                assert answer.status == 403
                assert "only the ledger writes this kind" in answer.json["message"]
            assert facade.ask("GET", f"{OURS}/{plural}", caller=caller).status == 200
    for part in ("runs/secret", "budgets/secret"):
        path = f"{OURS}/namespaces/vision/{part}/status"
        assert facade.ask("PUT", path, run("secret"), caller=ADMIN).status == 403


@pytest.mark.parametrize(
    "name",
    ["..%2f..%2fetc%2fpasswd", "..%2Fstore.db", "%2e%2e", "%00", "secret%00", "a%2fb", "..\\..\\x",
     "%ff%fe", "secret%2fstatus", "%2e%2e%2fsecret", "SECRET", "secret%20", "%252e%252e", "~", "-",
     "store.db", "a" * 300],
)  # fmt: skip
def test_hostile_name_in_url_is_refused_and_changes_nothing(facade: Facade, name: str) -> None:
    before = facade.store.version
    for path in (
        f"{RUNS}/{name}", f"{PODS}/{name}/log", f"{OURS}/namespaces/{name}/runs/secret",
        f"/openapi/v3/{name}", f"/api/v1/nodes/{name}", f"/apis/{name}/v1/runs",
    ):  # fmt: skip
        answer = facade.ask("GET", path)
        assert answer.status in (400, 404), path
        assert answer.json["kind"] == "Status"
        assert facade.ask("DELETE", path).status in (400, 404, 405)
    assert facade.store.version == before


@pytest.mark.parametrize(
    "path", ["/../../etc/passwd", "//etc/passwd", "/api/v1/../../x", "/.", "/api/v1//nodes"]
)
def test_path_traversal_is_not_found(facade: Facade, path: str) -> None:
    answer = facade.ask("GET", path)

    assert answer.status == 404
    assert answer.json["reason"] == "NotFound"


def test_invalid_names_in_manifests_are_refused(facade: Facade) -> None:
    for name in ("../x", "a/b", "", "A", "a\x00b", "..", "a" * 254):
        answer = facade.ask("POST", RUNS, run(name))
        assert answer.status == 422, name
        assert answer.json["details"]["causes"][0]["field"] == "metadata.name"
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "../../x"}}
    assert facade.ask("POST", "/api/v1/namespaces", namespace).status == 422


def test_revoked_or_expired_token_is_unauthorized(facade: Facade) -> None:
    gone = Caller(user="gone", namespaces=("vision",))
    assert facade.ask("GET", RUNS, caller=gone).status == 200
    facade.tokens.revoke("gone")
    assert facade.ask("GET", RUNS, caller=gone).status == 401
    old = facade.tokens.create(Caller(user="old", namespaces=("vision",)), expires=1)
    header = {"Authorization": f"Bearer {old}"}
    assert facade.ask("GET", RUNS, caller=None, headers=header).status == 401


def test_impersonation_headers_are_refused(facade: Facade) -> None:
    for name in ("Impersonate-User", "Impersonate-Group", "Impersonate-Extra-x"):
        answer = facade.ask("GET", RUNS, caller=ADMIN, headers={name: "loop"})
        assert answer.status == 403
        assert "impersonation" in answer.json["message"]
