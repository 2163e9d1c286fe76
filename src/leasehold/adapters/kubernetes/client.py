"""HTTP client of a Kubernetes API server: credentials, concurrency and back-off.

Used by `store` and the installer. Requests use lanes, each with its own connections, so that writes
of tenure and head never queue behind bulk writes. After a 401 the client reads its credentials
again and repeats the request once. This is safe, because a 401 means that nothing has happened.
"""

import asyncio
import io
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum

import aiohttp
import msgspec
import structlog
from yarl import URL

from leasehold.adapters.kubeconfig.read import BadKubeconfig, KubeContext
from leasehold.adapters.kubernetes.refusals import (
    BadCredentials,
    Key,
    error_of,
    is_stranger,
    no_answer,
)
from leasehold.adapters.kubernetes.trust import tls_material, trust_of
from leasehold.ports.store import Unavailable

IN_FLIGHT = 32
VITAL_CONNECTIONS = 4
REQUEST_S = 30.0
CONNECT_S = 5.0
RETRY_AFTER_MAX_S = 60.0
TELL_S = 60.0  # minimum time between two warnings about missing rights
RELOAD_S = 5.0  # minimum time between two reads of refused credentials
LONG_BODY = 512 * 1024
NOBODY: Key = ("", "", "")

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"

_encode = msgspec.json.Encoder().encode
_log = structlog.get_logger("leasehold")


class Lane(Enum):
    """The group of connections that a request uses. `VITAL` is for tenure and head."""

    VITAL = "vital"
    BULK = "bulk"
    WATCH = "watch"


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """One request. `key` names the object in error messages. `data` is the body of a write."""

    method: str
    path: str
    key: Key = NOBODY
    query: Mapping[str, str] = field(default_factory=dict)
    data: bytes | None = None
    content_type: str = JSON
    accept: str = JSON
    lane: Lane = Lane.BULK

    @property
    def is_write(self) -> bool:
        return self.method != "GET"


class _Track:
    """The connections of one lane, and the instant until which the server asked us to pause."""

    def __init__(self, session: aiohttp.ClientSession, at_once: int) -> None:
        self.session = session
        self.gate = asyncio.Semaphore(at_once)
        self.not_before = 0.0

    async def turn(self) -> None:
        while (left := self.not_before - asyncio.get_running_loop().time()) > 0:
            await asyncio.sleep(left)

    def hold_off(self, said: str) -> None:
        """Pause for the seconds in `said`, the server's `Retry-After`, plus a random part. Without
        the random part, all clients would come back at the same instant."""
        seconds = float(said) if said.isascii() and said.isdigit() else 1.0
        pause = min(seconds, RETRY_AFTER_MAX_S) * random.uniform(1.0, 1.2)
        self.not_before = max(self.not_before, asyncio.get_running_loop().time() + pause)


class Client:
    """Sends requests to the API server. The first request opens the connections, on its own event
    loop; `close` closes them."""

    def __init__(
        self,
        load: Callable[[], KubeContext],
        *,
        in_flight: int = IN_FLIGHT,
        request_s: float = REQUEST_S,
        agent: str = "leasehold",
    ) -> None:
        """`load` reads the credentials, at first and whenever the server refuses them. It may
        block, so it runs in a thread."""
        self._load = load
        self._in_flight = in_flight
        self._timeout = aiohttp.ClientTimeout(total=request_s, connect=CONNECT_S)
        self._agent = agent
        self._context: KubeContext | None = None
        self._loaded_at = 0.0
        self._opening = asyncio.Lock()
        self._tracks: dict[Lane, _Track] = {}
        self._streams: set[ApiStream] = set()  # not closed yet
        self._told_at = 0.0
        self.requests = 0  # number of requests sent
        # Treat missing rights as temporary, for processes that run for ever. They are logged.
        self.is_patient = False

    async def read(
        self,
        path: str,
        query: Mapping[str, str] | None = None,
        *,
        key: Key = NOBODY,
        lane: Lane = Lane.BULK,
    ) -> bytes:
        return await self.ask(ApiRequest("GET", path, key, query or {}, lane=lane))

    async def write(self, method: str, path: str, body: object, *, key: Key = NOBODY) -> bytes:
        return await self.ask(ApiRequest(method, path, key, data=_encode(body)))

    async def ask(self, request: ApiRequest) -> bytes:
        """Return the body of a successful answer; raise one of the port's errors."""
        await self._opened()
        for _ in range(2):
            track = self._tracks[request.lane]
            async with track.gate:
                await track.turn()
                try:
                    return await self._sent(track, request)
                except BadCredentials:
                    pass
            if not await self._reloaded():
                break
        raise Unavailable(*request.key)

    async def stream(self, request: ApiRequest, *, quiet_s: float) -> "ApiStream":
        """Return a streaming answer. The stream ends with `Unavailable` if nothing arrives for
        `quiet_s`."""
        await self._opened()
        track = self._tracks[request.lane]
        await track.turn()
        timeout = aiohttp.ClientTimeout(total=None, connect=CONNECT_S, sock_read=quiet_s)
        try:
            response = await self._answered(track, request, timeout)
            if response.status >= 400:
                await self._refuse(track, request, response)
        except BadCredentials:
            await self._reloaded()
            raise Unavailable(*request.key) from None
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Unavailable(*request.key) from error
        stream = ApiStream(response, request.key, self._streams)
        self._streams.add(stream)
        return stream

    async def close(self) -> None:
        for stream in list(self._streams):
            stream.close()
        tracks, self._tracks = list(self._tracks.values()), {}
        for track in tracks:
            await track.session.close()
        for _ in range(2):  # aborted connections are released in the loop's next iterations
            await asyncio.sleep(0)

    async def context(self) -> KubeContext:
        """Return the server's address and our credentials."""
        await self._opened()
        assert self._context is not None
        return self._context

    async def _sent(self, track: _Track, request: ApiRequest) -> bytes:
        try:
            async with await self._answered(track, request, self._timeout) as response:
                if response.status >= 400:
                    await self._refuse(track, request, response)
                return await response.read()
        except aiohttp.ClientConnectorError as error:
            raise Unavailable(*request.key) from error  # not sent: no connection
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise no_answer(request.key, is_write=request.is_write) from error

    async def _refuse(
        self, track: _Track, request: ApiRequest, response: aiohttp.ClientResponse
    ) -> None:
        body = await response.read()
        if response.status == 401:
            raise BadCredentials
        if response.status in (429, 503):
            track.hold_off(response.headers.get("Retry-After", ""))
        if self.is_patient and (said := is_stranger(response.status, body)):
            self._tell(said)
            raise Unavailable(*request.key)
        raise error_of(response.status, body, request.key, is_write=request.is_write)

    def _tell(self, said: str) -> None:
        now = asyncio.get_running_loop().time()
        if not self._told_at or now - self._told_at > TELL_S:
            self._told_at = now
            _log.warning("the API server does not allow this", message=said)

    async def _answered(
        self, track: _Track, request: ApiRequest, timeout: aiohttp.ClientTimeout
    ) -> aiohttp.ClientResponse:
        context = self._context
        assert context is not None
        headers = {"User-Agent": self._agent, "Accept": request.accept}
        if context.token:
            headers["Authorization"] = f"Bearer {context.token}"
        elif context.basic:
            headers["Authorization"] = f"Basic {context.basic}"
        data: bytes | io.BytesIO | None = request.data
        if request.data is not None:
            headers["Content-Type"] = request.content_type
            if len(request.data) > LONG_BODY:
                # Sent in chunks, so that other tasks get to run.
                data = io.BytesIO(request.data)
        url = URL(f"{context.server}{request.path}", encoded=True)
        self.requests += 1
        return await track.session.request(
            request.method,
            url.with_query(request.query) if request.query else url,
            headers=headers,
            data=data,
            timeout=timeout,
            server_hostname=context.server_name or None,
        )

    async def _opened(self) -> None:
        if self._tracks:
            return
        async with self._opening:
            if not self._tracks:
                if self._context is None:
                    self._context = await asyncio.to_thread(self._load)
                    self._loaded_at = asyncio.get_running_loop().time()
                self._open(self._context)

    def _open(self, context: KubeContext) -> None:
        trust = trust_of(context) if context.server.startswith("https:") else False
        for lane, at_once in (
            (Lane.VITAL, VITAL_CONNECTIONS),
            (Lane.BULK, self._in_flight),
            (Lane.WATCH, 0),
        ):
            session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=at_once, ssl=trust),
                timeout=self._timeout,
                # No compression: the network is fast, and answers are decoded at once.
                skip_auto_headers=("Accept-Encoding",),
            )
            self._tracks[lane] = _Track(session, at_once or 1)

    async def _reloaded(self) -> bool:
        """Read the credentials again. Return False if they were read a moment ago, or cannot be
        read."""
        async with self._opening:
            now, before = asyncio.get_running_loop().time(), self._context
            if now - self._loaded_at < RELOAD_S or before is None:
                return False
            self._loaded_at = now
            try:
                self._context = await asyncio.to_thread(self._load)
            except BadKubeconfig:
                return False
            if tls_material(before) != tls_material(self._context):
                await self.close()
                self._open(self._context)
            return True


class ApiStream:
    """A streaming answer, read chunk by chunk."""

    def __init__(
        self, response: aiohttp.ClientResponse, key: Key, others: "set[ApiStream]"
    ) -> None:
        self._response = response
        self._key = key
        self._others = others

    async def piece(self) -> bytes:
        """Return the next chunk; b"" at the end."""
        try:
            return await self._response.content.readany()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Unavailable(*self._key) from error

    def close(self) -> None:
        """Close at once, without waiting for a graceful shutdown of the connection."""
        self._others.discard(self)
        connection = self._response.connection
        if connection is not None and connection.transport is not None:
            connection.transport.abort()
        self._response.close()
