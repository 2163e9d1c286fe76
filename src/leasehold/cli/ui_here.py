"""Serves the dashboard of the kubeconfig's server on this machine, with the rights of the
kubeconfig's user.

For servers without pages, such as clusters. Everything is read through the query API with the
user's own credentials. The pages can be reached only from this machine, and only with the printed
link.
"""

import asyncio
import hashlib
import secrets
import socket
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import FrameType
from urllib.parse import quote

import click
import uvicorn
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from leasehold.app.failure import Failure
from leasehold.app.sheets import parquet_writer
from leasehold.cli.runs.records import as_record
from leasehold.cli.runs.server import Server
from leasehold.control.questions.answers import ANSWERS
from leasehold.control.questions.answers.books import HeadAnswer
from leasehold.control.questions.answers.shape import Answer
from leasehold.core.ledger.chain import GENESIS, canonical
from leasehold.core.names import GROUP, Wire
from leasehold.core.objects.wire import part
from leasehold.core.units import parse_instant
from leasehold.web.app import Pages, PagesAndFacade
from leasehold.web.authentication import LinkAuthentication
from leasehold.web.dependencies import BatchLine, Chain, NotShown, PageDependencies, Visitor
from leasehold.web.news import PageNews

POLL_S = 1.0
LOG_LINES = 500
_HOST = "127.0.0.1"
_BATCHES = f"/apis/{GROUP}/v1/ledgerbatches"
_PAGE = 500


@dataclass(frozen=True, slots=True)
class _Told:
    now: int
    found: Answer


@dataclass(frozen=True, slots=True)
class _Reader:
    user: str


class RemotePages:
    """The functions that pages call, which send queries to a server. There is one connection, so
    one request is sent at a time."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._one = asyncio.Lock()
        self._lines: dict[int, BatchLine] = {}  # a batch never changes
        self._reader = _Reader(server.context.user)
        self._digest = hashlib.sha256(secrets.token_bytes(32)).hexdigest()
        self._door = LinkAuthentication(
            visitor_of=lambda digest: self._reader if digest == self._digest else None,
            digest_of=lambda _token: None,
            key=secrets.token_bytes(32),
        )
        self.news = PageNews()

    def house(self) -> PageDependencies:
        return PageDependencies(
            ask=self._ask,
            chain=self._chain,
            logs=self._log,
            news=self.news,
            door=self._door,
            parquet=parquet_writer(),
        )

    def new_code(self) -> str:
        return self._door.sessions.new_code(self._digest)

    async def _send(self, path: str) -> Wire:
        async with self._one:
            try:
                return await asyncio.to_thread(self._server.send, "GET", path)
            except Failure as failure:
                raise NotShown(failure.status or 502, failure.message) from None

    async def _ask(self, _visitor: Visitor, question: str, params: Mapping[str, str]) -> _Told:
        async with self._one:
            try:
                wire = await asyncio.to_thread(self._server.ask, question, params)
            except Failure as failure:
                raise NotShown(failure.status or 502, failure.message) from None
        return _Told(parse_instant(str(wire.get("now"))) or 0, _record(question, wire))

    async def _chain(self, _visitor: Visitor, after: int, limit: int) -> Chain:
        head = (await self._ask(self._reader, "ledger-head", {})).found
        assert isinstance(head, HeadAnswer), "that is the question"
        end = min(after + limit, head.seq)
        if any(number not in self._lines for number in range(after + 1, end + 1)):
            await self._list_batches()
        lines = self._lines
        wanted = [lines[number] for number in sorted(lines) if number > after][:limit]
        if after in lines:
            return Chain(lines[after].digest, wanted)
        # The digest before the first live batch is in the archive.
        return Chain(GENESIS if 1 in lines else "", wanted)

    async def _list_batches(self) -> None:
        """List all batches that the server still has. Their names are not sorted by number, so a
        list cannot begin with a certain batch."""
        token = ""
        while True:
            more = f"&continue={quote(token, safe='')}" if token else ""
            page = await self._send(f"{_BATCHES}?limit={_PAGE}{more}")
            listed = page.get("items")
            for each in listed if isinstance(listed, list) else []:
                spec = part(each, "spec")
                number, digest = spec.get("seq"), str(spec.get("digest"))
                if isinstance(number, int) and number not in self._lines:
                    text = canonical(spec["batch"]).decode()
                    self._lines[number] = BatchLine(number, digest, text)
            token = str(part(page, "metadata").get("continue") or "")
            if not token:
                return

    async def _log(self, _visitor: Visitor, namespace: str, pod: str) -> str:
        place = f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(pod, safe='')}/log"
        path = f"{place}?tailLines={LOG_LINES}"

        def read() -> bytes:
            return b"".join(self._server.lines(path))

        async with self._one:
            try:
                return (await asyncio.to_thread(read)).decode("utf-8", "replace")
            except Failure as failure:
                raise NotShown(failure.status or 502, failure.message) from None

    async def follow(self) -> None:
        """Tell open pages that something may have changed, each time the ledger's head has moved;
        never return."""
        head: object = None
        while True:
            with suppress(NotShown):
                told = await self._ask(self._reader, "ledger-head", {})
                if told.found != head:
                    head = told.found
                    self.news.note()
            await asyncio.sleep(POLL_S)


def _record(question: str, wire: Wire) -> Answer:
    kinds = ANSWERS[question]
    kind = kinds[0]
    if len(kinds) > 1:
        forms = {each.__struct_config__.tag: each for each in kinds}
        kind = forms.get(str(wire.get("form")), kind)
    try:
        return as_record(kind, wire)
    except Failure as failure:
        raise NotShown(502, f"{question}: {failure.message}") from None


def serve_here(server: Server, port: int) -> None:
    """Serve the pages until the user presses Ctrl-C."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((_HOST, port))
            listener.listen()  # a visitor who follows the link at once has to wait only a moment
        except OSError as error:
            raise Failure(f"{_HOST}:{port}: {error.strerror}; choose another --port") from None
        with suppress(KeyboardInterrupt):
            asyncio.run(_serve(server, listener))


async def _serve(server: Server, listener: socket.socket) -> None:
    far = RemotePages(server)
    pages = Pages(far.house())
    config = uvicorn.Config(
        PagesAndFacade(pages, _Nothing(), far.news.end), lifespan="off", log_level="warning",
        timeout_graceful_shutdown=2,
    )  # fmt: skip
    following = asyncio.ensure_future(far.follow())
    code = far.new_code()
    # A browser sends the cookies of a host to all its ports. With an unguessable host name, other
    # servers on this machine cannot receive ours.
    host = f"leasehold-{secrets.token_hex(6)}.localhost"
    click.echo(f"http://{host}:{listener.getsockname()[1]}/ui/sign-in?code={code}")
    click.echo(f"shows {server.context.server} as user {server.context.user}; press Ctrl-C to stop")
    try:
        await _Ending(config, far.news).serve(sockets=[listener])
    finally:
        far.news.end()
        following.cancel()


class _Ending(uvicorn.Server):
    """A web server that closes the event streams of open pages when it is told to stop, instead of
    waiting for their end."""

    def __init__(self, config: uvicorn.Config, news: PageNews) -> None:
        super().__init__(config)
        self._news = news

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._news.end()
        super().handle_exit(sig, frame)


class _Nothing:
    """The application for requests that are not for pages: it answers 404."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await Response(status_code=404)(scope, receive, send)

    def end_streams(self) -> None:
        pass
