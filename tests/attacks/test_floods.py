"""Clients that try to exhaust the server, with and without a token."""

import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import pytest
from tests.rest.facade import ADMIN, ANN, RUNS, Facade, prepared, run

from leasehold.adapters.http import connections
from leasehold.adapters.rest import app

CONNECTIONS = 8


@pytest.fixture
def facade(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Facade]:
    monkeypatch.setattr(connections, "_most", lambda: CONNECTIONS)
    found = prepared(tmp_path)
    yield found
    found.__exit__()


def is_over(stranger: socket.socket) -> bool:
    stranger.settimeout(10)
    try:
        return stranger.recv(1) == b""
    except ConnectionError:
        return True


def test_silent_connections_are_closed_for_new_callers(facade: Facade) -> None:
    with ExitStack() as stack:
        silent = [
            stack.enter_context(socket.create_connection(("127.0.0.1", facade.port)))
            for _ in range(4 * CONNECTIONS)
        ]
        for _ in range(CONNECTIONS):
            assert facade.ask("GET", RUNS).status == 200
        assert all(is_over(each) for each in silent[:CONNECTIONS])


def test_requests_are_answered_on_twice_as_many_open_connections_as_allowed(facade: Facade) -> None:
    kept = [facade.connection() for _ in range(2 * CONNECTIONS)]
    try:
        for each in kept:
            facade.send(each, "GET", "/version")
            assert each.getresponse().read()
    finally:
        for each in kept:
            each.close()


def test_request_with_endless_headers_is_cut_off(facade: Facade) -> None:
    context = ssl.create_default_context(cadata=facade.certificates.ca_pem.decode())
    plain = socket.create_connection(("127.0.0.1", facade.port), timeout=10)
    line = b"X-More: " + b"y" * 1000 + b"\r\n"
    sent = 0
    with context.wrap_socket(plain, server_hostname="127.0.0.1") as stranger:
        stranger.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n")
        with suppress(OSError):
            while sent < 64 << 20:
                stranger.sendall(line * 64)
                sent += 64 * len(line)
    assert sent < 64 << 20
    assert facade.ask("GET", RUNS).status == 200


def test_streams_of_one_user_are_limited(facade: Facade, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "STREAMS_MAX", 2)
    watches = [facade.connection() for _ in range(2)]
    try:
        for each in watches:
            facade.send(each, "GET", RUNS, caller=ANN, watch="1")
            assert each.getresponse().status == 200
        refused = facade.ask("GET", RUNS, caller=ANN, watch="1")
        assert (refused.status, refused.json["reason"]) == (429, "TooManyRequests")
        assert facade.ask("GET", RUNS, caller=ANN).status == 200
        allowed = facade.ask("GET", RUNS, caller=ADMIN, watch="1", timeoutSeconds="1")
        assert allowed.status == 200
    finally:
        for each in watches:
            each.close()


def test_json_patch_that_copies_too_much_is_refused(facade: Facade) -> None:
    assert facade.ask("POST", RUNS, run("bomb")).status == 201
    operations = [
        {"op": "add", "path": "/metadata/annotations", "value": {"a": "x" * 1_000_000}},
        *({"op": "copy", "from": "/metadata/annotations/a", "path": f"/metadata/annotations/{n}"}
          for n in range(50)),
    ]  # fmt: skip
    answer = facade.ask(
        "PATCH", f"{RUNS}/bomb", operations,
        headers={"Content-Type": "application/json-patch+json"},
    )  # fmt: skip
    assert answer.status == 422
    assert "copies more than" in answer.json["message"]
