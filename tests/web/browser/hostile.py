"""Pages in whose answers every text that is not a time is replaced by an attacker's text.

That includes texts that the store would refuse (names of Runs, owners, labels) as well as texts
that it cannot refuse: messages, user names, output of jobs.
"""

import asyncio
import re
import socket
import threading
from collections.abc import Mapping
from typing import Any

import msgspec
import uvicorn
from tests.questions.played import ADMIN, Played
from tests.questions.test_the_past import STORY

from leasehold.control.questions.answers.shape import Answer
from leasehold.core.objects.access import Caller
from leasehold.shell.queries.query import Answered
from leasehold.web.app import Pages
from leasehold.web.authentication import LinkAuthentication
from leasehold.web.dependencies import BatchLine, Chain, PageDependencies, Visitor
from leasehold.web.news import PageNews

_INSTANT = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z")
_OURS = {"by", "form"}  # these repeat a parameter of the request
DIGEST = "0" * 64
PATIENCE_S = 30


class Hostile:
    """Serves on loopback until `stop`; `text` replaces every text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._questions = Played(STORY).questions()
        self._known: dict[tuple[str, tuple[tuple[str, str], ...]], Answered] = {}
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.base = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._link = ""
        self._began = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        assert self._began.wait(PATIENCE_S)

    def link(self) -> str:
        code = self._door.sessions.new_code(DIGEST)
        return f"{self.base}/ui/sign-in?code={code}"

    def change(self) -> None:
        """Announce a change, so that open pages fetch themselves again."""
        self._loop.call_soon_threadsafe(self._news.note)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._news.end)
        self._server.should_exit = True
        self._thread.join(PATIENCE_S)
        self._listener.close()

    def _run(self) -> None:
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._news = PageNews()
        caller = Caller(user=self.text, role=ADMIN.role)
        self._door = LinkAuthentication(
            visitor_of=lambda _digest: caller, digest_of=lambda _token: None, key=bytes(32)
        )
        house = PageDependencies(
            ask=self._ask, chain=self._chain, logs=self._logs, news=self._news, door=self._door
        )
        config = uvicorn.Config(Pages(house), lifespan="off", log_level="error")
        self._server = uvicorn.Server(config)
        self._server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
        self._loop.call_later(0.1, self._began.set)
        await self._server.serve(sockets=[self._listener])

    async def _ask(self, _visitor: Visitor, question: str, params: Mapping[str, str]) -> Answered:
        asked = _with_known_names(question, params)
        answered = await self._questions.answer(ADMIN, question, asked)
        return Answered(answered.now, self._theirs(answered.found))

    def _theirs(self, found: Answer) -> Answer:
        return msgspec.convert(self._over(msgspec.to_builtins(found)), type(found))

    def _over(self, value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {each: self._over(part, each) for each, part in value.items()}
        if isinstance(value, list):
            return [self._over(each, key) for each in value]
        if isinstance(value, str) and key not in _OURS and not _INSTANT.fullmatch(value):
            return self.text
        return value

    async def _chain(self, _visitor: Visitor, after: int, _limit: int) -> Chain:
        return Chain("", [] if after else [BatchLine(1, self.text, self.text)])

    async def _logs(self, _visitor: Visitor, _namespace: str, _pod: str) -> str:
        return f"{self.text}\n{self.text}"


def _with_known_names(question: str, params: Mapping[str, str]) -> dict[str, str]:
    """Return the parameters with hostile names replaced by names that exist in the scenario."""
    names = {"namespace": "vision", "run": "train", "node": "a-00"}
    asked = {key: names.get(key, value) for key, value in params.items()}
    if asked.pop("resolution", ""):
        asked["limit"] = "1"
    if asked.get("owner"):
        asked["owner"] = "org:ai:*"
    return asked
