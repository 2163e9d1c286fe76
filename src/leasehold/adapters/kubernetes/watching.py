"""A watch on a Kubernetes API server that resumes where it broke, or expires.

A watch that breaks or ends resumes from the last version seen. Only if the server no longer has
that version must the caller list all objects again. An event of a Node or a foreign Pod is skipped
if it changes none of the fields that we read.
"""

import random
from collections import deque
from hashlib import blake2b

import msgspec

from leasehold.adapters.kubernetes.client import ApiRequest, ApiStream, Client, Lane
from leasehold.adapters.kubernetes.places import Place
from leasehold.adapters.kubernetes.projection import Read, reader_of, substance
from leasehold.core.names import Wire
from leasehold.core.objects.wire import part, text_at, version_at
from leasehold.ports.runtime import Clock
from leasehold.ports.store import EventType, StoreError, WatchEvent, WatchExpired

LASTS_S = (300, 600)  # chosen at random, so that not all watches end at once
QUIET_S = 150.0  # bookmarks come every minute: a longer silence is a dead connection
FIRST_PAUSE_MS, LAST_PAUSE_MS = 100, 10_000
KNOWN_MAX = 200_000  # objects whose last content is remembered


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


class _Head(msgspec.Struct):
    """The fields that we read of a bookmark or of an error."""

    metadata: dict[str, object] = {}
    code: int = 0


_decode_event = msgspec.json.Decoder(_Event).decode
_decode_head = msgspec.json.Decoder(_Head).decode
_TYPES: dict[str, EventType] = {
    "ADDED": "ADDED",
    "MODIFIED": "MODIFIED",
    "DELETED": "DELETED",
}


class KubernetesWatch:
    """`ports.store.Watch`; connects at the first `next`."""

    def __init__(
        self, client: Client, clock: Clock, place: Place, version: int, *, is_known: bool
    ) -> None:
        """`is_known`: this server is known to have reached `version`, so the version need not be
        checked."""
        self._client = client
        self._clock = clock
        self._place = place
        self._version = version
        self._read: Read = reader_of(place.kind, place.api_version)
        self._ahead: deque[WatchEvent] = deque()
        self._stream: ApiStream | None = None
        self._rest = b""  # incomplete event
        self._is_checked = is_known
        self._known: dict[str, bytes] = {}
        self._closed = False

    @property
    def version(self) -> int:
        """The last version seen, including skipped events."""
        return self._version

    async def next(self) -> WatchEvent:
        pause = FIRST_PAUSE_MS
        while not self._closed:
            if self._ahead:
                return self._ahead.popleft()
            try:
                if await self._read_on():
                    pause = FIRST_PAUSE_MS
            except WatchExpired:
                self.close()
            except StoreError:
                self._break_off()
                await self._clock.sleep(int(pause * random.uniform(1.0, 1.5)))
                pause = min(LAST_PAUSE_MS, 2 * pause)
                await self._check_version()
        raise WatchExpired(self._place.kind)

    def close(self) -> None:
        self._closed = True
        self._break_off()

    def _break_off(self) -> None:
        if self._stream is not None:
            self._stream.close()
        self._stream, self._rest = None, b""

    async def _check_version(self) -> None:
        """Let the watch expire if the server's version is older than ours. Such a server was
        restored from a backup, and would send nothing until it has passed our version."""
        request = ApiRequest("GET", self._place.all(), (self._place.kind, "", ""), {"limit": "1"})
        try:
            head = _decode_head(await self._client.ask(request))
        except StoreError:
            return  # the next attempt will show it
        if version_at(head.metadata) < self._version:
            self.close()

    async def _read_on(self) -> bool:
        """Read the next events into `_ahead`. Return False if the server has ended the watch, which
        is normal."""
        if self._stream is None:
            if not self._is_checked:
                await self._check_version()
                self._is_checked = True
            if self._closed:
                raise WatchExpired(self._place.kind)
            self._stream = await self._client.stream(self._request(), quiet_s=QUIET_S)
        piece = await self._stream.piece()
        if not piece:
            self._break_off()
            return False
        *lines, self._rest = (self._rest + piece).split(b"\n")
        for line in lines:
            if line:
                self._take(_decode_event(line))
        return True

    def _request(self) -> ApiRequest:
        return ApiRequest(
            "GET",
            self._place.all(),
            (self._place.kind, "", ""),
            {
                "watch": "true",
                "allowWatchBookmarks": "true",
                "resourceVersion": str(self._version),
                "timeoutSeconds": str(random.randint(*LASTS_S)),
            },
            lane=Lane.WATCH,
        )

    def _take(self, event: _Event) -> None:
        raw = bytes(event.object)
        if event.type == "BOOKMARK":
            self._version = max(self._version, version_at(_decode_head(raw).metadata))
            return
        if event.type == "ERROR":
            if _decode_head(raw).code == 410:
                raise WatchExpired(self._place.kind)
            raise StoreError(self._place.kind)
        obj = self._read(raw)
        version = version_at(part(obj, "metadata"))
        self._version = max(self._version, version)
        kind = _TYPES[event.type]
        if self._is_news(kind, obj):
            self._ahead.append(WatchEvent(kind, version, lambda: obj))

    def _is_news(self, kind: EventType, obj: Wire) -> bool:
        said = substance(self._place.kind, obj)
        if said is None:
            return True
        uid = text_at(part(obj, "metadata"), "uid")
        if kind == "DELETED":
            self._known.pop(uid, None)
            return True
        digest = blake2b(said, digest_size=8).digest()
        is_same = self._known.get(uid) == digest
        if uid in self._known or len(self._known) < KNOWN_MAX:
            self._known[uid] = digest
        return not is_same
