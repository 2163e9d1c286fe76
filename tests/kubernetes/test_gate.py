"""What the ways to the API server that tests use leave behind when they are stopped: nothing."""

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


class _StopsAsSomebodyComes(Gate):
    late: socket.socket

    async def _pass_on(self, _: web.Request) -> web.StreamResponse:
        self.late = socket.create_connection(("127.0.0.1", self._port))
        await asyncio.sleep(0)  # the loop has seen it, and accepts it in this turn
        self._main.cancel()
        return web.Response()


class _LosesItsClients(Gate):
    done = False

    async def _pass_on(self, request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.close()
        try:
            return await super()._pass_on(request)
        finally:
            self.done = True


def test_who_is_accepted_while_it_stops_is_hung_up_on(cluster: Cluster) -> None:
    gate = _StopsAsSomebodyComes(cluster)
    asking = _ask(gate, PATH)
    gate.ended()
    with gate.late:
        gate.late.settimeout(DEADLINE_S)
        assert _rest(gate.late) == b""
    asking.close()
    gc.collect()  # whatever was left open would be told of here


def test_a_request_that_stands_at_the_gate_ends_with_it(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    _stop_while_two_wait(cluster)
    gc.collect()  # the gate, too: a task that was left would be told of here
    assert caplog.messages == []


def _stop_while_two_wait(cluster: Cluster) -> None:
    gate = Gate(cluster)
    gate.keep_back("GET", PATH)
    gone, waiting = _ask(gate, PATH), _ask(gate, PATH)
    _until(lambda: gate.kept == 2)
    gone.close()
    gate.stop()
    with pytest.raises((http.client.RemoteDisconnected, ConnectionResetError)):
        waiting.getresponse()
    waiting.close()


def test_a_stream_whose_client_has_gone_ends_quietly(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    gate = _LosesItsClients(cluster)
    asking = _ask(gate, f"{PATH}?watch=1")
    _until(lambda: gate.done)
    gate.stop()
    asking.close()
    assert caplog.messages == []


def test_streams_that_are_open_when_it_stops_are_closed_to_the_server_too(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    """Also by a server that is slow to say good-bye: it is asleep."""
    gate = Gate(cluster)
    asking = [_ask(gate, f"{PATH}?watch=1") for _ in range(10)]
    for each in asking:
        assert each.getresponse().status == 200
    with cluster.asleep():
        gate.stop()
    for each in asking:
        each.close()
    gc.collect()  # what was left open would be told of here
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
