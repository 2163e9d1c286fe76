"""Repeats store calls that failed temporarily or have an unknown outcome."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from leasehold.ports.runtime import Clock
from leasehold.ports.store import OutcomeUnknown, Unavailable

T = TypeVar("T")
FIRST_MS = 50
MOST_MS = 5_000


async def until_answered(clock: Clock, call: Callable[[], Awaitable[T]]) -> T:
    """Repeat an idempotent call with back-off until the store gives any definite answer."""
    pause = FIRST_MS
    while True:
        try:
            return await call()
        except (Unavailable, OutcomeUnknown):
            await clock.sleep(pause)
            pause = min(MOST_MS, pause * 2)
