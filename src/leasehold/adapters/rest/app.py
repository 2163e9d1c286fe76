"""The REST server as an ASGI application: authentication, routing, and errors as Status.

Created by `leasehold up` over a Backend and served by `serve`. Health endpoints need no token, and
tell a caller without a token only whether each check passes; everything else needs a token. Every
error is a typed Status. A defect of leasehold is a 500 without details; the details are in the log.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from contextlib import aclosing, suppress

import structlog
from starlette.types import Receive, Scope, Send

from leasehold.adapters.http.bodies import as_mapping, json_value
from leasehold.adapters.http.messages import (
    JSON,
    Answer,
    Request,
    Response,
    Stream,
    json_response,
    warning_headers,
)
from leasehold.adapters.http.refusal import RequestRefused
from leasehold.adapters.rest import discovery, handlers, openapi, reviews
from leasehold.adapters.rest.backend import Backend
from leasehold.adapters.rest.namespaces import NamespaceDeletion
from leasehold.adapters.rest.paths import no_such_path
from leasehold.adapters.rest.statuses import status_response
from leasehold.adapters.rest.watches import Watches
from leasehold.core.names import GROUP, Wire
from leasehold.core.objects.access import Caller
from leasehold.ports.store import StoreError

VERSION = "v1.36.0+leasehold"
OPENAPI_V2 = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
QUERY = (
    "apis",
    f"query.{GROUP}",
    "v1",
    "questions",
)  # the path of questions on a cluster, served here too
HEALTH = ("healthz", "livez", "readyz")
STREAMS_MAX = 128  # watches and followed logs per user who is not an administrator

_log = structlog.get_logger(__name__)


def make_app(backend: Backend) -> "App":
    return App(backend)


class App:
    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._discovery = discovery.Discovery()
        self._openapi = openapi.documents()
        self._openapi_index = openapi.index(self._openapi)
        self._watches = Watches(backend)
        self._streams: dict[int, Callable[[], None]] = {}
        self._streaming: Counter[str] = Counter()  # open streams by user

    def end_streams(self) -> None:
        """End watches and followed logs, so that stopping the server need not wait for them."""
        self._watches.end_all()
        for close in list(self._streams.values()):
            close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._live(receive, send)
        elif scope["type"] == "http":
            await self._serve(scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        """Run the task that empties deleted namespaces, from the start of the server until its
        stop."""
        await receive()
        task = asyncio.ensure_future(self._clear_namespaces())
        await send({"type": "lifespan.startup.complete"})
        await receive()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        await send({"type": "lifespan.shutdown.complete"})

    async def _clear_namespaces(self) -> None:
        while True:
            try:
                await NamespaceDeletion(self._backend.store, self._backend.clock).run()
            except StoreError as error:
                _log.warning("deleted namespaces are not cleaned up at the moment", why=str(error))
            except Exception:
                _log.exception("cleaning up a deleted namespace failed; leasehold tries again")
            await self._backend.clock.sleep(1000)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        request: Request | None = None
        try:
            request = Request(scope, receive)
            answer = await self._answer(request)
        except RequestRefused as refused:
            answer = status_response(refused)
        except Exception:
            _log.exception("request failed", method=scope.get("method"))
            answer = status_response(
                RequestRefused(500, "InternalError", "an internal error of the server")
            )
        if isinstance(answer, Stream):
            assert request is not None, "somebody asked for it"
            await self._stream_for(request.caller, answer, receive, send)
            return
        if request is not None and request.warnings:
            answer.headers += warning_headers(request.warnings)
        await _send_whole(answer, send, is_head=scope["method"] == "HEAD")

    async def _answer(self, request: Request) -> Answer:
        first = request.segments[0]
        if first in HEALTH:
            return self._health(request, first)
        request.caller = self._caller(request)
        if any(name.startswith(b"impersonate-") for name in request.headers):
            raise RequestRefused(
                403, "Forbidden", "impersonation is not supported; use a token of that user"
            )
        found = await self._elsewhere(request)
        if found is not None:
            return found
        self._check_streams(request)
        return await handlers.answer(self._backend, self._watches, request)

    def _caller(self, request: Request) -> Caller:
        scheme, _, token = request.header(b"authorization").partition(" ")
        caller = None
        if scheme.lower() == "bearer":
            caller = self._backend.tokens.caller_of(token.strip())
        if caller is None:
            raise RequestRefused(
                401, "Unauthorized", "Unauthorized: a valid bearer token is needed"
            )
        return caller

    def _knows(self, request: Request) -> bool:
        """Return whether the caller has a valid token."""
        try:
            self._caller(request)
        except RequestRefused:
            return False
        return True

    def _check_streams(self, request: Request) -> None:
        """Refuse another watch or followed log of a user who has too many open."""
        user = request.caller.user
        wants_one = "watch" in request.query or "follow" in request.query
        if wants_one and not request.caller.is_trusted and self._streaming[user] >= STREAMS_MAX:
            message = f"user {user!r} has {STREAMS_MAX} watches and logs open; close some of them"
            raise RequestRefused(429, "TooManyRequests", message)

    def _health(self, request: Request, which: str) -> Response:
        """Answer a health request. Liveness passes as long as the server answers; readiness also
        checks its parts. The reasons of failed checks are shown only to callers with a token."""
        if request.method not in ("GET", "HEAD"):
            raise RequestRefused(405, "MethodNotAllowed", "health endpoints can only be read")
        if len(request.segments) > 1:
            raise no_such_path()
        checks = self._backend.health() if which == "readyz" else {}
        may_know = self._knows(request)
        lines = [
            f"[-]{name} failed{f': {wrong}' if may_know else ''}" if wrong else f"[+]{name} ok"
            for name, wrong in checks.items()
        ]
        is_well = not any(checks.values())
        if is_well and "verbose" not in request.query:
            return Response(200, b"ok", "text/plain; charset=utf-8")
        lines.append(f"{which} check {'passed' if is_well else 'failed'}\n")
        return Response(
            200 if is_well else 503, "\n".join(lines).encode(), "text/plain; charset=utf-8"
        )

    async def _elsewhere(self, request: Request) -> Answer | None:
        """Answer a request that is not about a resource: discovery, OpenAPI documents, reviews,
        questions, metrics. Return None if there is no such path."""
        segments = request.segments
        first = segments[0]
        if first == "query":
            return await self._query(request, segments)
        if tuple(segments[: len(QUERY)]) == QUERY and len(segments) > len(QUERY):
            return await self._query(request, ["query", "v1", *segments[len(QUERY) :]])
        if first == "apis" and len(segments) == 4 and segments[1] in discovery.REVIEWS:
            _need(request, "POST")
            return (
                await reviews.review(request, segments[1], segments[3])
                if (segments[2] == "v1")
                else None
            )
        place = "/".join(segments).rstrip("/")
        found: Response | None = None
        if first in ("api", "apis"):
            found = self._discovery.answer(request, place)
        elif place == "version":
            found = json_response(_VERSION_DOCUMENT)
        elif first == "openapi":
            found = self._openapi_answer(request, place)
        elif place == "metrics":
            text = "text/plain; version=0.0.4; charset=utf-8"
            found = Response(200, await self._backend.metrics(request.caller), text)
        elif place == "":
            found = json_response({"paths": sorted(f"/{each}" for each in self._roots())})
        if found is not None:
            _need(request, "GET", "HEAD")
        return found

    def _roots(self) -> list[str]:
        return ["api", "apis", "metrics", "openapi/v2", "openapi/v3", "version", *HEALTH]

    def _openapi_answer(self, request: Request, place: str) -> Response | None:
        if place == "openapi/v2":
            # An empty document makes kubectl use v3 and its own knowledge.
            return Response(200, b"", OPENAPI_V2)
        if place == "openapi/v3":
            return discovery.cached(request, self._openapi_index, JSON)
        body = self._openapi.get(place.removeprefix("openapi/v3/"))
        if body is None:
            return None
        is_hashed = request.query.get("hash") == openapi.hash_of(body)
        return discovery.cached(request, body, JSON, for_ever=is_hashed)

    async def _query(self, request: Request, segments: list[str]) -> Response:
        if segments[:2] != ["query", "v1"] or len(segments) < 3 or not all(segments):
            raise no_such_path()
        _need(request, "GET", "POST")
        body: Wire | None = None
        if request.method == "POST":
            body = as_mapping(json_value(await request.body()))
        question = "/".join(segments[2:])
        answer = await self._backend.query(request.caller, question, request.query, body)
        return json_response(answer)

    async def _stream_for(
        self, caller: Caller, stream: Stream, receive: Receive, send: Send
    ) -> None:
        self._streaming[caller.user] += 1
        try:
            await self._stream(stream, receive, send)
        finally:
            self._streaming[caller.user] -= 1
            if not self._streaming[caller.user]:
                del self._streaming[caller.user]

    async def _stream(self, stream: Stream, receive: Receive, send: Send) -> None:
        """Send the headers at once and each chunk as it comes. End when the caller disconnects."""
        key = id(stream)
        self._streams[key] = stream.close
        listener = asyncio.ensure_future(_until_gone(receive, stream.close))
        try:
            await send(
                {
                    "type": "http.response.start",
                    "status": 200,
                    "headers": [(b"content-type", stream.content_type.encode())],
                }
            )
            async with aclosing(stream.chunks) as chunks:
                async for chunk in chunks:
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except Exception:
            # The status was sent already; all that can signal the error is an incomplete stream.
            _log.exception("stream failed")
        finally:
            self._streams.pop(key, None)
            listener.cancel()
            with suppress(asyncio.CancelledError):
                await listener


_VERSION_DOCUMENT: Wire = {
    "major": "1",
    "minor": "36",
    "gitVersion": VERSION,
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "1970-01-01T00:00:00Z",
    "goVersion": "",
    "compiler": "",
    "platform": "",
}


def _need(request: Request, *methods: str) -> None:
    if request.method not in methods:
        raise RequestRefused(
            405, "MethodNotAllowed", f"{request.method} is not allowed here; use {methods[0]}"
        )


async def _until_gone(receive: Receive, close: Callable[[], None]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    close()


async def _send_whole(answer: Response, send: Send, *, is_head: bool) -> None:
    has_body = answer.status not in (204, 304)
    headers = list(answer.headers)
    if has_body:
        headers.append((b"content-type", answer.content_type.encode()))
        headers.append((b"content-length", b"%d" % len(answer.body)))
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    body = answer.body if has_body and not is_head else b""
    await send({"type": "http.response.body", "body": body})
