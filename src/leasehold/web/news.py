"""A version number that grows whenever something happens, and waiting for the next version."""

import asyncio
import secrets
from contextlib import suppress


class PageNews:
    """`boot` identifies this process: version 5 of an earlier process is another version."""

    def __init__(self) -> None:
        self.boot = secrets.token_hex(4)
        self.version = 1
        self.is_over = False
        self._changed = asyncio.Event()

    @property
    def name(self) -> str:
        """The current version as text, with the `boot` of this process. A browser sends it back to
        resume a stream."""
        return f"{self.boot}-{self.version}"

    def note(self) -> None:
        self.version += 1
        self._wake()

    def end(self) -> None:
        """Wake everything that waits for a version, and end the streams."""
        self.is_over = True
        self._wake()

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def after(self, version: int, timeout_s: float) -> None:
        """Wait until the version is higher than `version`, or for the timeout."""
        if self.version > version or self.is_over:
            return
        with suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), timeout_s)
