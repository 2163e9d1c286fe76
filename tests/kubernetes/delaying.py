"""A proxy to the API server that delays requests and records them.

Every request waits half of the round trip before it is passed on, and its answer the other half.
The events of a watch wait half. A request depends on another one if it was sent after the other
was answered; how long anything took does not matter.
"""

import asyncio
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field

import aiohttp
from aiohttp import web
from tests.beside import Beside
from tests.kubernetes.closing import close_all
from tests.kubernetes.cluster import Cluster

_DROPPED = ("Transfer-Encoding", "Content-Length", "Content-Encoding", "Connection")


@dataclass
class Trip:
    """One request, and the numbers of its sending and its answer in the order of all events."""

    method: str
    path: str
    asked: int
    answered: int = 0
    body: bytes = b""

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


@dataclass
class _Order:
    """Numbers requests and answers in the order in which they arrive."""

    last: int = 0
    trips: list[Trip] = field(default_factory=list)

    def next(self) -> int:
        self.last += 1
        return self.last


class Delaying(Beside):
    """Listens on loopback without TLS."""

    def __init__(self, cluster: Cluster, round_trip_s: float) -> None:
        self._cluster = cluster
        self._half = round_trip_s / 2
        self._order = _Order()
        super().__init__()

    @property
    def server(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def set_round_trip(self, round_trip_s: float) -> None:
        """Let a round trip take `round_trip_s` from now on."""
        self.do(lambda: setattr(self, "_half", round_trip_s / 2))

    def forget(self) -> None:
        """Drop the recorded requests and record from now on."""
        self.do(lambda: setattr(self, "_order", _Order()))

    def trips(self, counts: Callable[[Trip], bool]) -> list[Trip]:
        """Return the answered requests that `counts` selects, in the order of their sending."""
        return [each for each in list(self._order.trips) if each.answered and counts(each)]

    async def _live(self) -> None:
        trust = ssl.create_default_context(cadata=self._cluster.ca)
        connector = aiohttp.TCPConnector(ssl=trust, limit=0)
        async with aiohttp.ClientSession(connector=connector) as session:
            self._session = session
            app = web.Application(client_max_size=4 << 20)
            app.router.add_route("*", "/{path:.*}", self._pass_on)
            runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.2)
            await runner.setup()
            listening = socket.create_server(("127.0.0.1", 0))
            await web.SockSite(runner, listening).start()
            self._port = listening.getsockname()[1]
            self._is_up.set()
            try:
                await asyncio.Event().wait()
            finally:
                await close_all(runner, listening)
        for _ in range(2):  # aborted connections are dropped in the loop's next turns
            await asyncio.sleep(0)

    async def _pass_on(self, request: web.Request) -> web.StreamResponse:
        url = f"{self._cluster.server}{request.raw_path}"
        headers = {name: value for name, value in request.headers.items() if name != "Host"}
        order, body = self._order, await request.read()
        trip = Trip(request.method, request.raw_path, order.next(), body=body)
        is_watch = "watch" in request.query
        if not is_watch:
            order.trips.append(trip)
        await asyncio.sleep(self._half)
        async with self._session.request(request.method, url, data=body, headers=headers) as answer:
            kept = {name: each for name, each in answer.headers.items() if name not in _DROPPED}
            if is_watch:
                return await self._stream(request, answer, kept)
            said = await answer.read()
        await asyncio.sleep(self._half)
        trip.answered = order.next()
        return web.Response(status=answer.status, body=said, headers=kept)

    async def _stream(
        self, request: web.Request, answer: aiohttp.ClientResponse, headers: dict[str, str]
    ) -> web.StreamResponse:
        response = web.StreamResponse(status=answer.status, headers=headers)
        pieces: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        now = asyncio.get_running_loop().time

        async def read() -> None:
            async for piece in answer.content.iter_any():
                pieces.put_nowait((now() + self._half, piece))
            pieces.put_nowait((now(), b""))

        reading = asyncio.create_task(read())
        try:
            await response.prepare(request)
            while True:
                due, piece = await pieces.get()
                await asyncio.sleep(max(0.0, due - now()))
                if not piece:
                    break
                await response.write(piece)
        except aiohttp.ClientConnectionResetError:
            pass  # the client has disconnected, as clients of a watch do
        finally:
            reading.cancel()
            # Closing waits for the server's end of TLS, and nothing here would wait for that.
            if answer.connection is not None and answer.connection.transport is not None:
                answer.connection.transport.abort()
        return response


def longest_chain(trips: list[Trip]) -> list[Trip]:
    """Return the longest list of requests of which each was sent after the one before it was
    answered."""
    best: dict[int, list[Trip]] = {}
    for trip in sorted(trips, key=lambda each: each.asked):
        before = [chain for chain in best.values() if chain[-1].answered < trip.asked]
        best[trip.asked] = [*max(before, key=len, default=[]), trip]
    return max(best.values(), key=len, default=[])
