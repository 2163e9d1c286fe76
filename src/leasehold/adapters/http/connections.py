"""Admits connections and limits their time, so that no client can use up the server's descriptors.

Used by `serve`, which has the listening socket and uvicorn's HTTP. Every process of this machine
can connect. A client must send the head of its first request within `HELLO_S`, and in at most
`HEAD_BYTES_MAX`. At the maximum number of connections, the oldest idle one is closed for a new one,
so that files, pipes and the store always have descriptors left. Tokens and streams per user are
limited in `app`.
"""

import asyncio
import resource
import socket
import ssl
from collections.abc import Callable
from contextlib import suppress

import structlog
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HELLO_S = 10.0  # from the connection to the end of the first request's head, TLS included
GOODBYE_S = 5.0  # for the TLS shutdown, which a client may not answer
HEAD_BYTES_MAX = 64 * 1024
ACCEPTS_AT_ONCE = 64
OURS = 256  # descriptors reserved for everything but connections
_PAUSE_S = 0.1
_SILENCE_S = 60.0  # minimum time between two warnings

_log = structlog.get_logger(__name__)


class HttpProtocol(HttpToolsProtocol):
    """uvicorn's HTTP protocol with a limit on the size of a request's head."""

    has_asked = False  # a complete head was received
    on_end: Callable[[], None] | None = None
    _head_bytes = 0
    _is_in_head = True

    @property
    def is_idle(self) -> bool:
        """Whether no request of this connection is waiting for an answer."""
        if not self.has_asked or self.transport is None or self.transport.is_closing():
            return True
        return self.cycle is not None and self.cycle.response_complete and not self.pipeline

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        super().data_received(data)
        if not self._is_in_head:
            return
        self._head_bytes += len(data)
        if self._head_bytes > HEAD_BYTES_MAX:
            self.transport.abort()  # an answer would have to wait until the client stops sending

    def on_message_begin(self) -> None:
        self._is_in_head, self._head_bytes = True, 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._is_in_head, self.has_asked = False, True
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self.on_end is not None:
            self.on_end()


class Connections:
    """Accepts connections from `open` until `close`. Connections accepted before `close`
    continue."""

    def __init__(
        self,
        listener: socket.socket,
        make: Callable[[], HttpProtocol],
        context: ssl.SSLContext,
        *,
        most: int | None = None,
        hello_s: float = HELLO_S,
    ) -> None:
        """`most`: the number of connections allowed at a time; None: the limit on descriptors less
        a reserve."""
        self._listener = listener
        self._make = make
        self._context = context
        self._most = _most() if most is None else most
        self._hello_s = hello_s
        self._open: dict[socket.socket, HttpProtocol] = {}  # oldest first
        self._greeting: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()
        self._complained = -_SILENCE_S

    def open(self) -> None:
        self._listener.setblocking(False)
        self._loop.add_reader(self._listener.fileno(), self._accept)

    def close(self) -> None:
        if self._listener.fileno() >= 0:
            self._loop.remove_reader(self._listener.fileno())
            self._listener.close()
        for connection, protocol in list(self._open.items()):
            if not protocol.has_asked:
                _hang_up(connection)

    def _accept(self) -> None:
        for _ in range(ACCEPTS_AT_ONCE):
            try:
                connection, _ = self._listener.accept()
            except (BlockingIOError, ConnectionError):
                return
            except OSError as error:  # no descriptor left in spite of the reserve
                self._complain(str(error.strerror))
                self._make_room()
                self._loop.remove_reader(self._listener.fileno())
                self._loop.call_later(_PAUSE_S, self._accept_again)
                return
            if len(self._open) >= self._most:
                self._complain(f"there are {self._most} connections")
                if not self._make_room():
                    connection.close()
                    continue
            self._take(connection)

    def _accept_again(self) -> None:
        if self._listener.fileno() >= 0:
            self._loop.add_reader(self._listener.fileno(), self._accept)

    def _take(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        protocol = self._make()
        self._open[connection] = protocol
        patience = self._loop.call_later(self._hello_s, self._lose_patience, connection)

        def over() -> None:
            patience.cancel()
            self._open.pop(connection, None)

        protocol.on_end = over
        task = self._loop.create_task(self._greet(connection, protocol))
        self._greeting.add(task)
        task.add_done_callback(self._greeting.discard)

    async def _greet(self, connection: socket.socket, protocol: HttpProtocol) -> None:
        try:
            await self._loop.connect_accepted_socket(
                lambda: protocol,
                connection,
                ssl=self._context,
                ssl_handshake_timeout=self._hello_s,
                ssl_shutdown_timeout=GOODBYE_S,
            )
        except OSError:  # not TLS, gone, or too slow
            connection.close()
            assert protocol.on_end is not None, "it was taken"
            protocol.on_end()

    def _lose_patience(self, connection: socket.socket) -> None:
        protocol = self._open.get(connection)
        if protocol is not None and not protocol.has_asked:
            _hang_up(connection)

    def _make_room(self) -> bool:
        """Close the oldest idle connection; return whether there was one."""
        for connection, protocol in self._open.items():
            if protocol.is_idle:
                del self._open[connection]
                _hang_up(connection)
                return True
        return False

    def _complain(self, why: str) -> None:
        now = self._loop.time()
        if now - self._complained >= _SILENCE_S:
            self._complained = now
            _log.warning(
                "the server cannot accept more connections; raise `ulimit -n`, or find the "
                "clients with `ss -tnp`",
                why=why,
            )


def _hang_up(connection: socket.socket) -> None:
    """Shut the socket down, so that its readers see the end of the connection, whatever state TLS
    is in."""
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def _most() -> int:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return 1 << 20 if limit == resource.RLIM_INFINITY else max(limit - OURS, limit // 2)
