"""Runs disk work directly while the disk is quick, and in a thread while it is slow.

Used by the node agent for new files and by the store for commits. On an idle disk, a hand-over to a
thread takes longer than the write itself. But while the file system is busy syncing, a write must
not block the event loop.
"""

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

QUICK_S = 0.001


class DiskPace:
    """Runs disk work, and remembers whether the last piece of work was quick."""

    def __init__(self, *, is_quick: bool = True) -> None:
        self.is_quick = is_quick

    async def do(self, work: Callable[[], T]) -> T:
        if self.is_quick:
            return self.timed(work)
        return await asyncio.to_thread(self.timed, work)

    def timed(self, work: Callable[[], T]) -> T:
        began = time.perf_counter()
        try:
            return work()
        finally:
            self.is_quick = time.perf_counter() - began < QUICK_S
