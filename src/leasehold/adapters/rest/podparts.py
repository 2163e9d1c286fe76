"""Subresources of a Pod: log, eviction and binding.

Called through `handlers`. A pod's output comes from the node agent through `Backend.logs`.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import suppress

from leasehold.adapters.http.bodies import read_object
from leasehold.adapters.http.messages import (
    Answer,
    Request,
    Response,
    Stream,
    bad_request,
    json_response,
)
from leasehold.adapters.http.refusal import RequestRefused
from leasehold.adapters.rest.backend import Backend, LogOptions
from leasehold.adapters.rest.options import is_rehearsal, options_of
from leasehold.adapters.rest.paths import Target
from leasehold.adapters.rest.statuses import refusal_of
from leasehold.adapters.rest.writes import delete_object, refusing
from leasehold.core.names import Wire
from leasehold.core.objects.wire import list_at, part, text_at
from leasehold.core.units import SECOND, parse_instant
from leasehold.ports.store import NotFound, StoreError

DONE: Wire = {
    "kind": "Status",
    "apiVersion": "v1",
    "metadata": {},
    "status": "Success",
    "code": 201,
}
FIRST_S = 0.25  # wait for an early refusal before sending headers


async def log(backend: Backend, request: Request, target: Target) -> Answer:
    """Return the pod's log. The log of a deleted pod is returned too, as long as its output is
    kept."""
    options = _log_options(backend, request)
    try:
        pod = await backend.store.get(*target.key)
    except NotFound:
        pod = {"metadata": {"namespace": target.namespace, "name": target.name}}
    except StoreError as error:
        raise refusal_of(error, target.resource, target.name) from None
    if "spec" in pod:
        _check_container(pod, request.query.get("container", ""))
        if not text_at(part(pod, "spec"), "nodeName"):
            return Response(204, b"", "text/plain")
    lines = backend.logs(pod, options)
    reader = _LogReader(lines, options.limit_bytes)
    await reader.begin()
    return Stream(reader.chunks(), reader.close, "text/plain")


async def evict(backend: Backend, request: Request, target: Target) -> Response:
    """Delete the pod with its grace period. The control loop decides what follows, such as a
    requeue of the run."""
    body = await read_object(request)
    if body.get("kind", "Eviction") != "Eviction":
        raise bad_request("the body is not an Eviction")
    named = part(body, "metadata").get("name")
    if named not in (None, "", target.name):
        raise bad_request("the name of the Eviction differs from the one in the URL")
    asked = part(body, "deleteOptions")
    options = options_of(asked, request, rehearses=is_rehearsal(request))
    pod = Target(target.resource, target.namespace, target.name)
    await delete_object(backend, request, pod, options)
    return json_response(DONE, 201)


async def bind(backend: Backend, request: Request, target: Target) -> Response:
    body = await read_object(request)
    node = part(body, "target").get("name")
    if not isinstance(node, str) or not node:
        raise bad_request("the Binding names no node; set target.name")
    pod = await refusing(backend.store.get(*target.key), target)
    there = text_at(part(pod, "spec"), "nodeName")
    if there:
        message = (
            f'Operation cannot be fulfilled on pods/binding "{target.name}": '
            f'pod {target.name} is already assigned to node "{there}"'
        )
        raise RequestRefused(409, "Conflict", message, kind="pods/binding", name=target.name)
    bound = {**pod, "spec": {**part(pod, "spec"), "nodeName": node}}
    try:
        await backend.store.update(bound, rehearse=is_rehearsal(request))
    except StoreError as error:
        raise refusal_of(error, target.resource, target.name) from None
    return json_response(DONE, 201)


def _log_options(backend: Backend, request: Request) -> LogOptions:
    since = None
    seconds, moment = request.number("sinceSeconds"), request.query.get("sinceTime", "")
    if seconds is not None and moment:
        raise bad_request("at most one of sinceTime and sinceSeconds may be given")
    if seconds is not None:
        since = backend.clock.now() - seconds * SECOND
    elif moment:
        since = parse_instant(moment[:64])
        if since is None:
            raise bad_request(f"sinceTime={moment[:80]!r} is not an RFC 3339 time")
    return LogOptions(
        follow=request.flag("follow"),
        timestamps=request.flag("timestamps"),
        tail_lines=request.number("tailLines"),
        since_ms=since,
        limit_bytes=request.number("limitBytes", least=1),
        previous=request.flag("previous"),
    )


def _check_container(pod: Wire, asked: str) -> None:
    names = [
        text_at(each, "name")
        for each in list_at(part(pod, "spec"), "containers")
        if isinstance(each, dict)
    ]
    if asked and asked not in names:
        raise bad_request(
            f"container {asked[:80]!r} is not in the pod; it has: {', '.join(names) or 'none'}"
        )


class _LogReader:
    """Reads a log one chunk ahead. If the log is refused at the first chunk, the answer can still
    be a Status instead of a broken stream."""

    def __init__(self, lines: AsyncIterator[bytes], limit: int | None) -> None:
        self._lines = lines
        self._left = limit
        self._next: asyncio.Future[bytes] = asyncio.ensure_future(self._pull())
        self._is_closed = False

    async def begin(self) -> None:
        await asyncio.wait({self._next}, timeout=FIRST_S)
        if self._next.done() and isinstance(self._next.exception(), RequestRefused):
            self._next.result()

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        try:
            while not self._is_closed:
                try:
                    chunk = await self._next
                except (StopAsyncIteration, _Ended, asyncio.CancelledError):
                    return
                if self._left is not None:
                    chunk = chunk[: self._left]
                    self._left -= len(chunk)
                if chunk:
                    yield chunk
                if self._left == 0:
                    return
                self._next = asyncio.ensure_future(self._pull())
        finally:
            self.close()
            with suppress(asyncio.CancelledError, Exception):
                await self._next
            closing = getattr(self._lines, "aclose", None)
            if closing is not None:
                await closing()

    def close(self) -> None:
        self._is_closed = True
        self._next.cancel()

    async def _pull(self) -> bytes:
        try:
            return await anext(self._lines)
        except StopAsyncIteration:
            raise _Ended from None


class _Ended(Exception):  # noqa: N818 - named for the condition
    """The log has ended. Needed because a future cannot hold a StopAsyncIteration."""
