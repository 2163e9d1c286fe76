"""Watches: existing objects and changes as a stream of JSON events.

Called through `handlers`. Each watch is one task that sleeps until the store wakes it. It ends when
its caller disconnects, at its timeout, or when the server stops. With a selector, an object that no
longer matches is reported as DELETED, and one that begins to match as ADDED. For this, a watch
remembers which objects matched.
"""

from collections.abc import AsyncGenerator

import msgspec

from leasehold.adapters.http.messages import Request, Stream, encode, wrong_option
from leasehold.adapters.objects.storage import PastChange, decode
from leasehold.adapters.objects.store import ObjectWatch
from leasehold.adapters.rest.backend import Backend
from leasehold.adapters.rest.hiding import redacted
from leasehold.adapters.rest.paths import Target
from leasehold.adapters.rest.reads import check_version, selection, stored, told
from leasehold.adapters.rest.statuses import expired, failure, refusal_of
from leasehold.adapters.rest.tables import (
    Form,
    asked_form,
    event_table,
    included,
    metadata_of,
)
from leasehold.core.names import Wire
from leasehold.core.objects.wire import part, stamps
from leasehold.core.units import SECOND
from leasehold.ports.store import StoreError, WatchExpired

BOOKMARK_MS = 60 * SECOND
TIMEOUT_S_MAX = 365 * 24 * 3600


class _Meta(msgspec.Struct):
    name: str = ""
    namespace: str = ""


class _Head(msgspec.Struct):
    """The metadata that identifies an object; the rest of the object is not decoded."""

    metadata: _Meta = msgspec.field(default_factory=_Meta)


_head = msgspec.json.Decoder(_Head).decode


class Watches:
    """All open watches, so that a stop can end them."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._open: dict[int, WatchStream] = {}
        self._is_stopping = False

    def start(self, request: Request, target: Target) -> Stream:
        found = WatchStream(self._backend, request, target)
        key = id(found)
        self._open[key] = found
        if self._is_stopping:
            found.close()

        async def chunks() -> AsyncGenerator[bytes, None]:
            try:
                async for chunk in found.chunks():
                    yield chunk
            finally:
                found.close()
                self._open.pop(key, None)

        return Stream(chunks(), found.close)

    def end_all(self) -> None:
        self._is_stopping = True
        for each in list(self._open.values()):
            each.close()


class WatchStream:
    """One watch. The constructor raises `RequestRefused` for an invalid request; later errors
    become events of the stream."""

    def __init__(self, backend: Backend, request: Request, target: Target) -> None:
        self._backend = backend
        self._request = request
        self._target = target
        self._resource = target.resource
        self._is_closed = False
        self._watch: ObjectWatch | None = None
        self._form = asked_form(request, is_list=False)
        self._include = included(request)
        self._matches = selection(backend, request, self._resource)
        fields = request.query.get("fieldSelector", "")
        terms = [term for term in fields.split(",") if term]
        # Names never change, so no object can start or stop matching.
        self._is_fixed = not request.query.get("labelSelector") and all(
            term.startswith(("metadata.name=", "metadata.namespace=")) for term in terms
        )
        self._matched: dict[tuple[str, str], bool] = {}
        self._has_told = False
        self._wants_bookmarks = request.flag("allowWatchBookmarks")
        self._initial = request.flag("sendInitialEvents")
        self._version = request.number("resourceVersion")
        match = request.query.get("resourceVersionMatch", "")
        if match != ("NotOlderThan" if self._initial else ""):
            remedy = "use NotOlderThan with sendInitialEvents, and leave it out otherwise"
            raise wrong_option(request, "resourceVersionMatch", "FieldValueForbidden", remedy)
        timeout = request.number("timeoutSeconds")
        self._ends = None
        if timeout:
            self._ends = backend.clock.monotonic() + min(timeout, TIMEOUT_S_MAX) * SECOND
        if self._initial:
            check_version(backend, request, backend.store.version)

    def close(self) -> None:
        self._is_closed = True
        if self._watch is not None:
            self._watch.close()

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        try:
            for first in self._begin():
                yield first
            assert self._watch is not None, "it has begun"
            while (wait := self._patience()) is None or wait > 0:
                change = await self._watch.next_stored(wait)
                chunk: bytes | None = None
                if change is not None:
                    chunk = self._told(change)
                elif self._wants_bookmarks:
                    chunk = await self._bookmark_now()
                if chunk:
                    yield chunk
        except WatchExpired:
            if not self._is_closed:
                message = (
                    f"too old resource version: {self._version} ({self._backend.store.version})"
                )
                yield _event("ERROR", encode(failure(expired(message))))
        except StoreError as error:
            refused = refusal_of(error, self._resource, "")
            yield _event("ERROR", encode(failure(refused)))

    def _begin(self) -> list[bytes]:
        """Start the watch, and return the events that come first: the existing objects, if the
        request does not continue an earlier list."""
        follows_list = not self._initial and bool(self._version)
        found: list[bytes] = []
        if follows_list:
            assert self._version is not None, "it is not 0"
            start = self._version
            if self._matches is not None and not self._is_fixed:
                self._recall(start)
        else:
            bodies, start = stored(self._backend, self._request, self._target)
            for body in bodies:
                if self._matches is not None and not self._passes_first(body):
                    continue
                found.append(self._shown("ADDED", body))
            self._version = start
            if self._initial and self._wants_bookmarks:
                found.append(self._bookmark(start, is_end=True))
        self._watch = self._backend.store.watch(self._resource.kind, start)
        if self._is_closed:
            self._watch.close()
        return found

    def _recall(self, start: int) -> None:
        """Record for each object that has not changed since version `start` whether it matches the
        selector."""
        assert self._matches is not None, "it is asked for a selector's sake"
        bodies, _ = stored(self._backend, self._request, self._target)
        for body in bodies:
            obj = decode(body)
            stamped = stamps(obj)
            if stamped.version <= start:
                self._matched[stamped.namespace, stamped.name] = self._matches(obj)

    def _passes_first(self, body: bytes) -> bool:
        assert self._matches is not None, "there is a selector"
        obj = decode(body)
        passes = self._matches(obj)
        if not self._is_fixed:
            stamped = stamps(obj)
            self._matched[stamped.namespace, stamped.name] = passes
        return passes

    def _told(self, change: PastChange) -> bytes | None:
        event: str = change.event
        namespace = self._target.namespace
        if namespace and _head(change.body).metadata.namespace != namespace:
            return None
        body = told(self._resource, change.body)
        if self._matches is not None:
            translated = self._translate(event, decode(body))
            if translated is None:
                return None
            event = translated
        return self._shown(event, body)

    def _translate(self, event: str, obj: Wire) -> str | None:
        assert self._matches is not None, "there is a selector"
        passes = self._matches(obj)
        if self._is_fixed:
            return event if passes else None
        metadata = part(obj, "metadata")
        key = (str(metadata.get("namespace", "")), str(metadata.get("name", "")))
        before = self._matched.pop(key, None)
        if event == "DELETED":
            return event if before or (before is None and passes) else None
        self._matched[key] = passes
        if passes:
            return "ADDED" if before is False else event
        # Unknown: changed since the caller's list, which may contain it, so remove it.
        return "DELETED" if before or (before is None and event == "MODIFIED") else None

    def _shown(self, event: str, body: bytes) -> bytes:
        body = redacted(self._backend, self._request, self._resource, body)
        if self._form is Form.WHOLE:
            return _event(event, body)
        if self._form is Form.METADATA:
            return _event(event, encode(metadata_of(decode(body))))
        shown = event_table(
            self._resource,
            decode(body),
            now=self._backend.clock.now(),
            include=self._include,
            is_first=not self._has_told,
        )
        self._has_told = True
        return _event(event, encode(shown))

    async def _bookmark_now(self) -> bytes | None:
        """Return a bookmark with the store's version. If a change has come meanwhile, return that
        change instead."""
        assert self._watch is not None, "it has begun"
        reached = self._backend.store.version
        change = await self._watch.next_stored(0)
        return self._bookmark(reached, is_end=False) if change is None else self._told(change)

    def _bookmark(self, version: int, *, is_end: bool) -> bytes:
        metadata: Wire = {"resourceVersion": str(version)}
        if is_end:
            metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
        document = {
            "kind": self._resource.served_kind,
            "apiVersion": self._resource.api_version,
            "metadata": metadata,
        }
        return _event("BOOKMARK", encode(document))

    def _patience(self) -> int | None:
        """Return how long, in ms, to wait for the next change; None without a limit, 0 or less when
        the watch's time is over."""
        left = None if self._ends is None else self._ends - self._backend.clock.monotonic()
        if not self._wants_bookmarks:
            return left
        return BOOKMARK_MS if left is None else min(left, BOOKMARK_MS)


def _event(kind: str, body: bytes) -> bytes:
    return b"".join((b'{"type":"', kind.encode(), b'","object":', body, b"}\n"))
