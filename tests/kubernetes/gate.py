"""A proxy to the API server that can be cut off and can hold requests back until released."""

import asyncio

from aiohttp import web
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.unreliable import Unreliable

NEVER = 1 << 60


class Gate(Unreliable):
    def __init__(self, cluster: Cluster) -> None:
        self._wanted: tuple[str, str] | None = None
        self._is_cut = False
        self._streams: dict[int, web.Request] = {}
        self._open = asyncio.Event()
        self.kept = 0  # requests that were held back
        self.answers: list[int] = []  # the API server's answers to them, after their release
        super().__init__(cluster, every=NEVER)

    def hold_back(self, method: str, part: str) -> None:
        """Hold back requests of `method` with `part` in their path, from now on."""
        self._wanted = (method, part)

    def release(self) -> None:
        """Release the requests that were held back, even those whose client has gone."""
        self._wanted = None
        self._loop.call_soon_threadsafe(self._open.set)

    def cut(self) -> None:
        """Close all open connections and refuse new requests."""
        self._is_cut = True

        def abort() -> None:
            for request in list(self._streams.values()):
                if request.transport is not None:
                    request.transport.abort()

        self._loop.call_soon_threadsafe(abort)

    def mend(self) -> None:
        self._is_cut = False

    async def _pass_on(self, request: web.Request) -> web.StreamResponse:
        if self._is_cut:
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        wanted = self._wanted
        if wanted is not None and request.method == wanted[0] and wanted[1] in request.path:
            await request.read()
            self.kept += 1
            await self._open.wait()
            answer = await super()._pass_on(request)
            self.answers.append(answer.status)
            return answer
        self._streams[id(request)] = request
        try:
            return await super()._pass_on(request)
        finally:
            del self._streams[id(request)]
