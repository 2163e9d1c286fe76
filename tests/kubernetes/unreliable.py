"""A proxy to the API server on which every n-th request fails, before or after it is passed on."""

import asyncio
import itertools
import socket
import ssl

import aiohttp
from aiohttp import web
from tests.beside import Beside
from tests.kubernetes.closing import close_all
from tests.kubernetes.cluster import Cluster

# The faults, in turn. "lost": the request is done but answered with 504; "cut": its connection is
# closed instead of an answer.
TROUBLES = ("429", "500", "lost", "cut")
_DROPPED = ("Transfer-Encoding", "Content-Length", "Content-Encoding", "Connection")


class Unreliable(Beside):
    """Listens on loopback without TLS. Every `every`-th request that is not a watch fails."""

    def __init__(self, cluster: Cluster, every: int) -> None:
        self._cluster = cluster
        self._every = every
        self._count = itertools.count(1)
        self._kinds = itertools.cycle(TROUBLES)
        self.troubled = 0
        super().__init__()

    @property
    def server(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def heal(self) -> None:
        self._every = 1 << 60

    async def _live(self) -> None:
        trust = ssl.create_default_context(cadata=self._cluster.ca)
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trust)) as session:
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
        trouble = ""
        if "watch" not in request.query and next(self._count) % self._every == 0:
            trouble = next(self._kinds)
            self.troubled += 1
        if trouble == "429":
            return web.json_response({}, status=429, headers={"Retry-After": "0"})
        if trouble == "500":
            return web.json_response({}, status=500)
        url = f"{self._cluster.server}{request.raw_path}"
        headers = {name: value for name, value in request.headers.items() if name != "Host"}
        async with self._session.request(
            request.method, url, data=await request.read(), headers=headers
        ) as answer:
            kept = {name: each for name, each in answer.headers.items() if name not in _DROPPED}
            if "watch" in request.query:
                return await self._stream(request, answer, kept)
            body = await answer.read()
        if trouble == "lost":
            return web.json_response({}, status=504)
        if trouble == "cut":
            assert request.transport is not None
            request.transport.abort()
        return web.Response(status=answer.status, body=body, headers=kept)

    async def _stream(
        self, request: web.Request, answer: aiohttp.ClientResponse, headers: dict[str, str]
    ) -> web.StreamResponse:
        response = web.StreamResponse(status=answer.status, headers=headers)
        try:
            await response.prepare(request)
            async for piece in answer.content.iter_any():
                await response.write(piece)
        except aiohttp.ClientConnectionResetError:
            pass  # the client has disconnected, as clients of a watch do
        finally:
            # Closing waits for the server's end of TLS, and nothing here would wait for that.
            if answer.connection is not None and answer.connection.transport is not None:
                answer.connection.transport.abort()
        return response
