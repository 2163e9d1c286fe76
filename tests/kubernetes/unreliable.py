"""A way to the API server on which every so many requests fail: before it is asked, or after."""

import asyncio
import itertools
import ssl
import threading

import aiohttp
from aiohttp import web
from tests.kubernetes.cluster import Cluster

DEADLINE_S = 30
# What befalls a request, in turn. "lost": it was done, and nobody hears of it.
TROUBLES = ("429", "500", "lost", "cut")
_DROPPED = ("Transfer-Encoding", "Content-Length", "Content-Encoding", "Connection")


class Unreliable:
    """Listens on loopback without TLS. Every `every`-th request that is no watch has trouble."""

    def __init__(self, cluster: Cluster, every: int) -> None:
        self._cluster = cluster
        self._every = every
        self._count = itertools.count(1)
        self._kinds = itertools.cycle(TROUBLES)
        self._loop = asyncio.new_event_loop()
        self._is_up = threading.Event()
        self.troubled = 0
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()
        assert self._is_up.wait(DEADLINE_S)

    @property
    def server(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def heal(self) -> None:
        self._every = 1 << 60

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._main.cancel)
        self._thread.join(DEADLINE_S)

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._main = self._loop.create_task(self._live())
        try:
            self._loop.run_until_complete(self._main)
        except asyncio.CancelledError:
            pass
        finally:
            self._loop.close()

    async def _live(self) -> None:
        trust = ssl.create_default_context(cadata=self._cluster.ca)
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trust)) as session:
            self._session = session
            app = web.Application(client_max_size=4 << 20)
            app.router.add_route("*", "/{path:.*}", self._pass_on)
            runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.2)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            self._port = runner.addresses[0][1]
            self._is_up.set()
            try:
                await asyncio.Event().wait()
            finally:
                await runner.cleanup()

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
        await response.prepare(request)
        async for piece in answer.content.iter_any():
            await response.write(piece)
        return response
