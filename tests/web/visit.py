"""The pages over a scenario that was played, without a socket: requests are ASGI messages."""

import asyncio
from pathlib import Path
from typing import Any, NamedTuple

from tests.questions.played import ADMIN, Played

from leasehold.adapters.http.tokens import Tokens
from leasehold.app.sheets import parquet_writer
from leasehold.core.objects.access import Caller
from leasehold.shell.queries.query import Answered, BadQuestion
from leasehold.web.app import Pages
from leasehold.web.authentication import LinkAuthentication
from leasehold.web.dependencies import BatchLine, Chain, NotShown, PageDependencies, Visitor
from leasehold.web.news import PageNews
from leasehold.web.sessions import COOKIE

KEY = bytes(32)
DEADLINE_S = 30
LOG = "step 1\n<script>alert('log')</script>\n"


class Seen(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode("utf-8", "replace")


class Visit:
    """A visit to the pages: `sign_in` starts a session, and `see` requests one page."""

    def __init__(
        self,
        folder: Path,
        story: Path,
        until: str | None = None,
        *,
        parquet: bool = True,
        **hides: bool,
    ) -> None:
        played = Played(story, until)
        self.questions = played.questions(**hides)
        self.tokens = Tokens(folder / "tokens.json")
        self.news = PageNews()
        self.door = self.make_door()
        house = PageDependencies(
            ask=self._ask,
            chain=self._chain,
            logs=self._logs,
            news=self.news,
            door=self.door,
            parquet=parquet_writer() if parquet else None,
        )
        self.pages = Pages(house)
        self.cookie = ""

    def make_door(self) -> Any:
        return LinkAuthentication(
            visitor_of=self.tokens.caller_of_digest, digest_of=self.tokens.digest_of, key=KEY
        )

    async def _ask(self, visitor: Visitor, question: str, params: Any) -> Answered:
        assert isinstance(visitor, Caller)
        try:
            return await self.questions.answer(visitor, question, params)
        except BadQuestion as bad:
            raise NotShown(bad.status, bad.message) from None

    async def _chain(self, _visitor: Visitor, after: int, limit: int) -> Chain:
        lines = [BatchLine(seq, f"{seq:064x}", f'{{"seq":{seq}}}') for seq in range(1, 6)]
        return Chain("0" * 64, [line for line in lines if line.seq > after][:limit])

    async def _logs(self, _visitor: Visitor, _namespace: str, _pod: str) -> str:
        return LOG

    def sign_in(self, caller: Caller = ADMIN) -> str:
        """Sign in, keep the cookie, and return the code that was used."""
        token = self.tokens.create(caller)
        asked = self.see("/ui/code", method="POST", authorization=f"Bearer {token}")
        code = asked.text.partition('"code":"')[2].partition('"')[0]
        seen = self.see("/ui/sign-in", f"code={code}")
        assert seen.status == 200, seen.text
        self.cookie = seen.headers["set-cookie"].partition(";")[0]
        assert self.cookie.startswith(f"{COOKIE}=")
        return code

    def see(self, path: str, query: str = "", *, method: str = "GET", **headers: str) -> Seen:
        sent = {"cookie": self.cookie, "host": "localhost", **headers}
        scope = {
            "type": "http",
            "method": method,
            "scheme": "https",
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "headers": [(name.encode(), value.encode()) for name, value in sent.items() if value],
        }
        return asyncio.run(asyncio.wait_for(self._see(scope), DEADLINE_S))

    async def _see(self, scope: dict[str, Any]) -> Seen:
        messages: list[dict[str, Any]] = [{"type": "http.request", "body": b"", "more_body": False}]
        received: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            return messages.pop(0) if messages else {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            received.append(message)

        await self.pages(scope, receive, send)
        headers = {name.decode(): value.decode() for name, value in received[0]["headers"]}
        body = b"".join(each.get("body", b"") for each in received[1:])
        return Seen(received[0]["status"], headers, body)
