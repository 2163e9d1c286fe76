"""The facade without a socket: requests are ASGI messages, and the store is in memory.

This is fast enough for many requests. The caller sends its body and then hangs up, so that no
stream outlives its request.
"""

import asyncio
import tempfile
from pathlib import Path
from typing import Any

from tests.rest.facade import SYSTEM, Answer, World, backend_over

from leasehold.adapters.asyncio_runtime import AsyncioClock, AsyncioTasks
from leasehold.adapters.http.tokens import Tokens
from leasehold.adapters.memory.store import MemoryStore
from leasehold.adapters.objects.admission import Admission
from leasehold.adapters.rest.app import make_app
from leasehold.core.objects.access import Caller

DEADLINE_S = 30


class InProcess:
    def __init__(self, *, hides_tenants: bool = False) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._runner = asyncio.Runner()
        self.world = World(hides_tenants=hides_tenants)
        self.tokens = Tokens(Path(self._folder.name) / "tokens.json")
        self._runner.run(self._make())
        self._headers: dict[str, bytes] = {}

    def close(self) -> None:
        self._runner.close()
        self._folder.cleanup()

    async def _make(self) -> None:
        clock = AsyncioClock()
        self.store = MemoryStore(AsyncioTasks(), clock, Admission())
        self.app = make_app(backend_over(self.world, self.store, self.tokens, clock))

    def header(self, caller: Caller) -> bytes:
        if caller.user not in self._headers:
            self._headers[caller.user] = f"Bearer {self.tokens.create(caller)}".encode()
        return self._headers[caller.user]

    def ask(
        self,
        method: str,
        path: bytes,
        body: bytes = b"",
        *,
        query: bytes = b"",
        caller: Caller = SYSTEM,
        headers: dict[bytes, bytes] | None = None,
    ) -> Answer:
        sent = {b"authorization": self.header(caller), **(headers or {})}
        if body:
            sent.setdefault(b"content-length", b"%d" % len(body))
        scope = {
            "type": "http",
            "method": method,
            "path": path.decode("latin-1"),
            "raw_path": path,
            "query_string": query,
            "headers": list(sent.items()),
        }
        return self._runner.run(asyncio.wait_for(self._ask(scope, body), DEADLINE_S))

    async def _ask(self, scope: dict[str, Any], body: bytes) -> Answer:
        messages = [{"type": "http.request", "body": body, "more_body": False}]
        received: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            return messages.pop(0) if messages else {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            received.append(message)

        await self.app(scope, receive, send)
        start = received[0]
        headers = {name.decode(): value.decode("latin-1") for name, value in start["headers"]}
        whole = b"".join(each.get("body", b"") for each in received[1:])
        return Answer(start["status"], headers, whole)
