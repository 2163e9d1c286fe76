"""What the dashboard stands on, put together for the embedded control plane.

Called by `cli.embedded`. Pages see what their visitor's token may see, because they ask as its
caller does; what is read from the store beside that is refused where the facade would refuse it.
"""

from collections.abc import AsyncIterator, Callable, Mapping

from leasehold.adapters.http.refusal import RequestRefused
from leasehold.adapters.http.tokens import Tokens
from leasehold.adapters.rest.backend import LogOptions
from leasehold.cli.sheets import parquet_writer
from leasehold.core.ledger.chain import canonical
from leasehold.core.names import Wire
from leasehold.core.objects.access import Caller
from leasehold.core.objects.wire import part, text_at
from leasehold.ports.runtime import Clock
from leasehold.ports.store import NotFound, Store
from leasehold.shell.archive.checkpoints import read_checkpoint
from leasehold.shell.plane import Plane
from leasehold.shell.query import Answered, BadQuestion
from leasehold.web.house import BatchLine, Chain, House, NotShown, Visitor
from leasehold.web.news import PageNews

LOG_LINES = 500
LOG_BYTES_MAX = 256 * 1024

Logs = Callable[[Wire, LogOptions], AsyncIterator[bytes]]


class Rooms:
    """The functions of a House; see there."""

    def __init__(
        self,
        *,
        plane: Plane,
        store: Store,
        clock: Clock,
        tokens: Tokens,
        logs: Logs,
        hides_tenants: bool,
    ) -> None:
        self._plane = plane
        self._store = store
        self._clock = clock
        self._tokens = tokens
        self._logs = logs
        self._hides = hides_tenants

    def house(self, news: PageNews, key: bytes) -> House:
        return House(
            ask=self._ask,
            visitor_of=self._tokens.caller_of_digest,
            digest_of=self._tokens.digest_of,
            chain=self._chain,
            logs=self._log,
            news=news,
            key=key,
            parquet=parquet_writer(),
        )

    async def _ask(self, visitor: Visitor, question: str, params: Mapping[str, str]) -> Answered:
        try:
            return await self._plane.questions.answer(_caller(visitor), question, params)
        except BadQuestion as bad:
            raise NotShown(bad.status, bad.message) from None

    async def _chain(self, visitor: Visitor, after: int, limit: int) -> Chain:
        if self._hides and not _caller(visitor).is_trusted:
            said = "batches name every team, and query.hideTenants is on; ask with an admin's token"
            raise NotShown(403, said)
        specs = []
        for name in self._plane.controller.batches_from(after, limit + 1):
            try:
                specs.append(part(await self._store.get("LedgerBatch", "", name), "spec"))
            except NotFound:  # archived meanwhile
                continue
        lines = [
            BatchLine(_number(each), text_at(each, "digest"), canonical(each["batch"]).decode())
            for each in specs
        ]
        if lines and lines[0].seq == after:
            return Chain(lines[0].digest, lines[1:])
        archived, _ = await read_checkpoint(self._store, self._clock)
        return Chain(archived.digest, lines[:limit])

    async def _log(self, visitor: Visitor, namespace: str, pod: str) -> str:
        if not _caller(visitor).sees(namespace):
            raise NotShown(403, f"user {visitor.user!r} may not see {namespace!r}")
        try:
            found = await self._store.get("Pod", namespace, pod)
            options = LogOptions(tail_lines=LOG_LINES, limit_bytes=LOG_BYTES_MAX)
            chunks = [chunk async for chunk in self._logs(found, options)]
        except NotFound:
            raise NotShown(404, f"pod {namespace}/{pod} is gone") from None
        except RequestRefused as refused:
            raise NotShown(refused.code, refused.message) from None
        return b"".join(chunks).decode("utf-8", "replace")


def _caller(visitor: Visitor) -> Caller:
    assert isinstance(visitor, Caller), "visitors are made of tokens"
    return visitor


def _number(spec: Wire) -> int:
    found = spec.get("seq")
    assert isinstance(found, int), "a committed batch has its number"
    return found
