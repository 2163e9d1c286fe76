"""An API server that gives scripted answers and records the requests that it receives."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

from aiohttp import web

from leasehold.adapters import asyncio_runtime
from leasehold.adapters.kubeconfig.read import KubeContext
from leasehold.adapters.kubernetes.client import Client
from leasehold.adapters.kubernetes.store import KubernetesStore

T = TypeVar("T")
Reply = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass
class Scripted:
    """Answers with `replies` in order, and repeats the last one.

    `address` is another address for the client to use.
    """

    replies: list[Reply]
    address: str = ""
    tokens: list[str] = field(default_factory=lambda: ["first"])
    heard: list[web.Request] = field(default_factory=list)
    at: list[int] = field(default_factory=list)  # milliseconds, by the monotonic clock

    def tell(self, story: Callable[[KubernetesStore], Awaitable[T]]) -> T:
        async def main(clock: asyncio_runtime.AsyncioClock, _: object) -> T:
            async def answer(request: web.Request) -> web.StreamResponse:
                self.heard.append(request)
                self.at.append(clock.monotonic())
                reply = self.replies.pop(0) if len(self.replies) > 1 else self.replies[0]
                return await reply(request)

            app = web.Application()
            app.router.add_route("*", "/{path:.*}", answer)
            runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            port = runner.addresses[0][1]
            client = Client(lambda: self._context(port), request_s=5.0)
            try:
                return await story(KubernetesStore(client, clock))
            finally:
                await client.close()
                await runner.cleanup()

        return asyncio_runtime.run(main)

    def _context(self, port: int) -> KubeContext:
        token = self.tokens.pop(0) if len(self.tokens) > 1 else self.tokens[0]
        server = self.address or f"http://127.0.0.1:{port}"
        return KubeContext(name="x", server=server, user="u", namespace="n", token=token)


def says(status: int, body: object = None, **headers: str) -> Reply:
    async def reply(_: web.Request) -> web.StreamResponse:
        return web.json_response(body or {}, status=status, headers=headers)

    return reply


def streams(*events: object) -> Reply:
    """Return a reply that is a watch: it sends `events` and ends."""

    async def reply(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for event in events:
            encoded = web.json_response(event).body
            assert isinstance(encoded, bytes)
            middle = len(encoded) // 2
            await response.write(encoded[:middle])  # an event may arrive in two pieces
            await response.write(encoded[middle:] + b"\n")
        return response

    return reply


async def hangs_up(request: web.Request) -> web.StreamResponse:
    """Close the connection without an answer."""
    assert request.transport is not None
    request.transport.close()
    return web.Response()
