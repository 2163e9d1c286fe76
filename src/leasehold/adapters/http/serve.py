"""Our REST server on a TLS port, inside the running event loop.

Called by `leasehold up`. uvicorn handles HTTP; signals, logging and the loop stay the caller's. At
`stop` no new connections are accepted, watches and logs end, and open requests are answered.
"""

import asyncio
import errno
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import uvicorn
from starlette.types import Receive, Scope, Send

from leasehold.adapters.http.connections import Connections, HttpProtocol
from leasehold.adapters.http.tls import Certificates

GRACE_S = 5  # for open requests at a stop
GOODBYE_S = 0.3  # for clients to receive their answers
TICK_S = 0.05
BACKLOG = 2048


class Streaming(Protocol):
    """An ASGI application whose endless streams can be ended."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None: ...

    def end_streams(self) -> None: ...


class PortInUse(Exception):  # noqa: N818 - named for the condition
    """The port is in use, or may not be used; the message names the problem and a remedy."""


class HttpServer:
    """A listening server; `stop` ends it."""

    def __init__(
        self,
        server: "_Uvicorn",
        task: "asyncio.Task[None]",
        app: Streaming,
        connections: Connections,
    ) -> None:
        self._server = server
        self._task = task
        self._connections = connections
        self._app = app
        self.port = 0

    async def stop(self) -> None:
        """Stop, and return when the last answer has been sent. Stopping twice is harmless."""
        self._connections.close()
        self._server.should_exit = True
        self._app.end_streams()
        patience = GOODBYE_S
        while not self._task.done():
            await asyncio.wait({self._task}, timeout=TICK_S)
            if not self._server.server_state.tasks:
                patience -= TICK_S
            if patience <= 0:
                self._hang_up()
        await self._task

    def _hang_up(self) -> None:
        """Abort connections of clients that keep them open or do not answer the TLS shutdown."""
        for connection in list(self._server.server_state.connections):
            transport = getattr(connection, "transport", None)
            if transport is not None:
                transport.abort()


class _Uvicorn(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    def make_protocol(self) -> HttpProtocol:
        """Return the protocol object for a connection that `Connections` has accepted."""
        return HttpProtocol(
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )


async def serve(
    app: Streaming, *, host: str, port: int, certificates: Certificates, only_from: str = ""
) -> HttpServer:
    """Start listening. With port 0 a free port is chosen; `HttpServer.port` has its number.

    `only_from`: certificates in PEM. If given, a client must present one of them, or a certificate
    signed by one of them."""
    listener = _listen(host, port)
    config = uvicorn.Config(
        app,
        http=HttpProtocol,
        ws="none",
        lifespan="on",
        ssl_certfile=certificates.cert_path,
        ssl_keyfile=certificates.key_path,
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=75,
        timeout_graceful_shutdown=GRACE_S,
    )
    try:
        config.load()
        assert isinstance(config.ssl, ssl.SSLContext), "a certificate was given"
        config.ssl.minimum_version = ssl.TLSVersion.TLSv1_2
        if only_from:
            config.ssl.load_verify_locations(cadata=only_from)
            config.ssl.verify_mode = ssl.CERT_REQUIRED
            config.ssl.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
        server = _Uvicorn(config)
        task = asyncio.get_running_loop().create_task(server.serve(sockets=[]), name="rest-server")
        while not server.started and not task.done():
            await asyncio.sleep(0.005)
        if task.done():
            task.result()
            raise RuntimeError("the REST server ended before it began")
        connections = Connections(listener, server.make_protocol, config.ssl)
        connections.open()
    except BaseException:
        listener.close()
        raise
    found = HttpServer(server, task, app, connections)
    found.port = listener.getsockname()[1]
    return found


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio disables Nagle's algorithm only on sockets with an explicit TCP protocol; otherwise
    # every answer waits 40 ms for the client to acknowledge its headers.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise PortInUse(_sentence(host, port, error)) from error
    return listener


def _sentence(host: str, port: int, error: OSError) -> str:
    place = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    if error.errno == errno.EADDRINUSE:
        return f"{place} is in use by another program; stop it, or choose another port with --port"
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"this user may not listen on {place}; choose a port over 1023 with --port"
    return f"leasehold cannot listen on {place} ({error.strerror}); choose another host or port"
