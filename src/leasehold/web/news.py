"""A version that grows whenever something happens, and those that wait for it."""

import asyncio
import secrets
from contextlib import suppress


class PageNews:
    """`boot` distinguishes this process' versions from those of an earlier process."""

    def __init__(self) -> None:
        self.boot = secrets.token_hex(4)
        self.version = 1
        self.is_over = False
        self._changed = asyncio.Event()

    @property
    def name(self) -> str:
        """The identity of the current version, with which a stream is resumed."""
        return f"{self.boot}-{self.version}"

    def note(self) -> None:
        self.version += 1
        self._wake()

    def end(self) -> None:
        """Wake all waiters and end the streams."""
        self.is_over = True
        self._wake()

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def after(self, version: int, timeout_s: float) -> None:
        """Wait for a version after `version`, or for the timeout."""
        if self.version > version or self.is_over:
            return
        with suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), timeout_s)
