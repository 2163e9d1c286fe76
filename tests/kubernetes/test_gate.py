"""The tests' own proxies to the API server leave no open connection behind when they stop."""

import asyncio
import gc
import http.client
import socket
import time
from collections.abc import Callable

import pytest
from aiohttp import web
from tests.beside import DEADLINE_S
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.gate import Gate

PATH = "/api/v1/namespaces"


class _StopsDuringAccept(Gate):
    late: socket.socket

    async def _pass_on(self, _: web.Request) -> web.StreamResponse:
        self.late = socket.create_connection(("127.0.0.1", self._port))
        await asyncio.sleep(0)  # the loop has seen the connection and accepts it in this turn
        self._main.cancel()
        return web.Response()


class _DropsItsClients(Gate):
    done = False

    async def _pass_on(self, request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.close()
        try:
            return await super()._pass_on(request)
        finally:
            self.done = True


def test_connection_accepted_while_gate_stops_is_closed(cluster: Cluster) -> None:
    gate = _StopsDuringAccept(cluster)
    asking = _ask(gate, PATH)
    gate.ended()
    with gate.late:
        gate.late.settimeout(DEADLINE_S)
        assert _rest(gate.late) == b""
    asking.close()
    gc.collect()  # warns of any connection that was left open


def test_request_held_at_gate_ends_when_gate_stops(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    _stop_while_two_requests_wait(cluster)
    gc.collect()  # collects the gate, too, and warns of any task that was left
    assert caplog.messages == []


def _stop_while_two_requests_wait(cluster: Cluster) -> None:
    gate = Gate(cluster)
    gate.hold_back("GET", PATH)
    gone, waiting = _ask(gate, PATH), _ask(gate, PATH)
    _until(lambda: gate.kept == 2)
    gone.close()
    gate.stop()
    with pytest.raises((http.client.RemoteDisconnected, ConnectionResetError)):
        waiting.getresponse()
    waiting.close()


def test_stream_of_disconnected_client_ends_without_log_messages(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    gate = _DropsItsClients(cluster)
    asking = _ask(gate, f"{PATH}?watch=1")
    _until(lambda: gate.done)
    gate.stop()
    asking.close()
    assert caplog.messages == []


def test_open_streams_are_closed_towards_server_when_gate_stops(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    """The API server is asleep, so it does not answer the end of a connection either."""
    gate = Gate(cluster)
    asking = [_ask(gate, f"{PATH}?watch=1") for _ in range(10)]
    for each in asking:
        assert each.getresponse().status == 200
    with cluster.asleep():
        gate.stop()
    for each in asking:
        each.close()
    gc.collect()  # warns of any stream that was left open
    assert caplog.messages == []


def _ask(gate: Gate, path: str) -> http.client.HTTPConnection:
    asking = http.client.HTTPConnection(gate.server.removeprefix("http://"), timeout=DEADLINE_S)
    asking.request("GET", path, headers={"Authorization": "Bearer system"})
    return asking


def _rest(connection: socket.socket) -> bytes:
    try:
        return connection.recv(1)
    except ConnectionResetError:
        return b""


def _until(look: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not look():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)
