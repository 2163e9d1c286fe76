"""Connects the dashboard to the embedded control plane.

Called by `app.embedded`. A page can show what the token of its visitor allows, because the page
sends its queries in that visitor's name. Some pages also read objects from the store. Such a read
is refused if the REST facade would refuse it too.
"""

from collections.abc import AsyncIterator, Callable, Mapping

from leasehold.adapters.http.refusal import RequestRefused
from leasehold.adapters.rest.backend import LogOptions
from leasehold.app.chain import committed_chain
from leasehold.app.sheets import parquet_writer
from leasehold.core.names import Wire
from leasehold.core.objects.access import Caller
from leasehold.ports.runtime import Clock
from leasehold.ports.store import NotFound, Store
from leasehold.shell.plane import Plane
from leasehold.shell.queries.query import Answered, BadQuestion
from leasehold.web.dependencies import Authentication, Chain, NotShown, PageDependencies, Visitor
from leasehold.web.news import PageNews

LOG_LINES = 500
LOG_BYTES_MAX = 256 * 1024

Logs = Callable[[Wire, LogOptions], AsyncIterator[bytes]]


class EmbeddedPages:
    """The functions that the dashboard calls; `house` puts them into a `PageDependencies`."""

    def __init__(
        self,
        *,
        plane: Plane,
        store: Store,
        clock: Clock,
        logs: Logs,
        hides_tenants: bool,
    ) -> None:
        self._plane = plane
        self._store = store
        self._clock = clock
        self._logs = logs
        self._hides = hides_tenants

    def house(self, news: PageNews, door: Authentication) -> PageDependencies:
        return PageDependencies(
            ask=self._ask,
            chain=self._chain,
            logs=self._log,
            news=news,
            door=door,
            parquet=parquet_writer(),
        )

    async def _ask(self, visitor: Visitor, question: str, params: Mapping[str, str]) -> Answered:
        try:
            return await self._plane.questions.answer(_caller(visitor), question, params)
        except BadQuestion as bad:
            raise NotShown(bad.status, bad.message) from None

    async def _chain(self, visitor: Visitor, after: int, limit: int) -> Chain:
        if self._hides and not _caller(visitor).is_trusted:
            said = "batches name every team, and query.hideTenants is on; use an admin's token"
            raise NotShown(403, said)
        return await committed_chain(
            self._plane, self._store, self._clock, after=after, limit=limit
        )

    async def _log(self, visitor: Visitor, namespace: str, pod: str) -> str:
        if not _caller(visitor).sees(namespace):
            raise NotShown(403, f"user {visitor.user!r} may not see {namespace!r}")
        try:
            found = await self._store.get("Pod", namespace, pod)
            options = LogOptions(tail_lines=LOG_LINES, limit_bytes=LOG_BYTES_MAX)
            chunks = [chunk async for chunk in self._logs(found, options)]
        except NotFound:
            raise NotShown(404, f"pod {namespace}/{pod} no longer exists") from None
        except RequestRefused as refused:
            raise NotShown(refused.code, refused.message) from None
        return b"".join(chunks).decode("utf-8", "replace")


def _caller(visitor: Visitor) -> Caller:
    assert isinstance(visitor, Caller), "visitors are made of tokens"
    return visitor
