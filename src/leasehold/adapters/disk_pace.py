"""Work that waits for the disk: done at once while that is quick, and on a thread otherwise.

Used by the node agent for new files, and by the store for its commits. Handing over to a thread and
back takes longer than a file system that is idle; one that is busy syncing must not hold up
everybody else on the loop.
"""

import asyncio
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

QUICK_S = 0.001


class DiskPace:
    """Remembers how long the last piece of work took."""

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
