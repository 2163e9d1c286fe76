"""The stream of a page: an event whenever something happened, at most one in a while.

An event says only that there is something new; the page asks for it. Its `id` is the number of the
news, which a browser sends back when it connects again, so that nothing is missed and nothing is
asked for in vain.
"""

import asyncio
from collections.abc import AsyncIterator, Callable

from leasehold.web.news import PageNews

GATHER_S = 0.5  # between two events of one stream
BEAT_S = 10.0  # without news, so that both ends know that they are there, and times are shown anew
RETRY_MS = 1000


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
