"""Repeats store calls that failed temporarily or whose outcome is unknown."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from leasehold.ports.runtime import Clock
from leasehold.ports.store import OutcomeUnknown, Unavailable

T = TypeVar("T")
FIRST_MS = 50
MOST_MS = 5_000


async def until_answered(clock: Clock, call: Callable[[], Awaitable[T]]) -> T:
    """Repeat the call, with growing pauses, until the store gives a definite answer, which may be
    another error. The call must be idempotent."""
    pause = FIRST_MS
    while True:
        try:
            return await call()
        except (Unavailable, OutcomeUnknown):
            await clock.sleep(pause)
            pause = min(MOST_MS, pause * 2)
