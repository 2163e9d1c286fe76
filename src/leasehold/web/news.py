"""That something happened: a number that grows, and whoever waits for it."""

import asyncio
import secrets
from contextlib import suppress


class PageNews:
    """`boot` tells this process's numbers from those of the one before it."""

    def __init__(self) -> None:
        self.boot = secrets.token_hex(4)
        self.version = 1
        self.is_over = False
        self._changed = asyncio.Event()

    @property
    def name(self) -> str:
        """Of what is so now; the identity of an event, with which a stream is resumed."""
        return f"{self.boot}-{self.version}"

    def note(self) -> None:
        self.version += 1
        self._wake()

    def end(self) -> None:
        """Nobody waits any longer, and streams end."""
        self.is_over = True
        self._wake()

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def after(self, version: int, timeout_s: float) -> None:
        """Returns when there is something newer, or nothing was for so long."""
        if self.version > version or self.is_over:
            return
        with suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), timeout_s)
