"""The stream of a page: an event whenever something happened, at most one in a while.

An event says only that there is something new; the page asks for it. Its `id` is the number of the
news, which a browser sends back when it connects again, so that nothing is missed and nothing is
asked for in vain.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable

from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from leasehold.web.house import NotShown
from leasehold.web.news import PageNews

GATHER_S = 0.5  # between two events of one stream
BEAT_S = 10.0  # without news, so that both ends know that they are there, and times are shown anew
RETRY_MS = 1000
STREAMS_MAX = 64  # of one visitor; a browser has six
STREAMS_OF_ALL_MAX = 2048  # each is a connection and some memory of the process that decides


class Streams:
    """Counts those that are open, from before the first byte until the last."""

    def __init__(self) -> None:
        self._of: Counter[str] = Counter()

    def response(self, whose: str, stream: AsyncIterator[str]) -> StreamingResponse:
        """Raises `NotShown` where there are too many."""
        if self._of[whose] >= STREAMS_MAX:
            raise NotShown(429, f"{STREAMS_MAX} pages of yours are live; close some of them")
        if self._of.total() >= STREAMS_OF_ALL_MAX:
            raise NotShown(503, "too many pages are live; this one shows what was so when it came")
        return _Counted(self._of, whose, stream)


class _Counted(StreamingResponse):
    """Taken when it is made, so that many at once do not all find room; given back when it ends,
    however it does."""

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
                del self._streams[self._whose]  # whoever comes once is not remembered for ever


async def events(
    news: PageNews, last_id: str, *, is_welcome: Callable[[], bool]
) -> AsyncIterator[str]:
    """Ends when the visitor's token does."""
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
