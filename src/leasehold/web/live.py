"""The event stream of a page: sends an event when something has happened, but not too often.

An event contains no news itself; the page then fetches its content again. The event's `id` is the
version of the news. A browser sends the last `id` back when it reconnects, so that nothing is
missed or fetched twice.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from leasehold.web.dependencies import NotShown
from leasehold.web.news import PageNews

GATHER_S = 0.5  # between two events of one stream
BEAT_S = 10.0  # keep-alive interval, which also refreshes displayed times
RETRY_MS = 1000
STREAMS_MAX = 64  # per visitor; a browser allows six
STREAMS_OF_ALL_MAX = 2048  # each costs a connection and memory in the controller


class Streams:
    """Counts the event streams that are open. A stream counts from the moment it is requested until
    it has ended."""

    def __init__(self) -> None:
        self._of: Counter[str] = Counter()

    def response(self, whose: str, stream: AsyncIterator[str]) -> StreamingResponse:
        """Return the response that streams the events; raise `NotShown` if the visitor has too many
        streams open."""
        if self._of[whose] >= STREAMS_MAX:
            raise NotShown(
                429, f"{STREAMS_MAX} live pages are open in your name; close some of them"
            )
        if self._of.total() >= STREAMS_OF_ALL_MAX:
            raise NotShown(503, "too many live pages are open; this page does not update")
        return _Counted(self._of, whose, stream)


class _Counted(StreamingResponse):
    """A stream that `Streams` counts. It counts from its creation, so that simultaneous requests
    cannot exceed the limit. It is released when it ends for whatever reason."""

    def __init__(self, of: Counter[str], whose: str, stream: AsyncIterator[str]) -> None:
        super().__init__(stream, media_type="text/event-stream")
        self._streams, self._whose = of, whose
        self._streams[whose] += 1

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._streams[self._whose] -= 1
            if not self._streams[self._whose]:
                del self._streams[self._whose]  # do not keep counters of former visitors


async def events(
    news: PageNews, last_id: str, *, is_welcome: Callable[[], bool]
) -> AsyncIterator[str]:
    """Yield a `change` event for each new version, and a `beat` after ten seconds without one. End
    when the visitor is no longer signed in, or when the server stops."""
    yield f"retry: {RETRY_MS}\n\n"
    seen = news.version
    if last_id != news.name:
        yield _event("change", news.name)
    while is_welcome():
        await news.after(seen, BEAT_S)
        if news.is_over:
            return
        if news.version == seen:
            yield _event("beat", news.name)
            continue
        seen = news.version
        yield _event("change", news.name)
        await asyncio.sleep(GATHER_S)


def _event(kind: str, name: str) -> str:
    return f"event: {kind}\nid: {name}\ndata: {name}\n\n"
