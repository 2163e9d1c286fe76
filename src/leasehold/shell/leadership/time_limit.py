"""Calls with a time limit: an answer that comes late is not used."""

from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from leasehold.core.units import Millis
from leasehold.ports.runtime import Clock, Tasks
from leasehold.ports.store import OutcomeUnknown

T = TypeVar("T")


class _Answer(Generic[T]):
    def __init__(self) -> None:
        self.value: list[T] = []
        self.error: Exception | None = None


async def answered_within(
    clock: Clock, tasks: Tasks, ms: Millis, call: Callable[[], Awaitable[T]]
) -> T:
    """Return the result of `call`, or raise its error. Raise `OutcomeUnknown` if neither arrives
    within `ms` by our own clock. An answer that came in time but is read too late, because this
    process was paused, counts as late."""
    sent = clock.monotonic()
    answer: _Answer[T] = _Answer()
    came = tasks.signal()

    async def ask() -> None:
        try:
            answer.value.append(await call())
        except Exception as error:
            answer.error = error
        came.set()

    task = tasks.spawn("request", ask())
    try:
        await came.wait(ms)
    finally:
        task.cancel()
    if clock.monotonic() - sent > ms:
        raise OutcomeUnknown
    if answer.error is not None:
        raise answer.error
    if not answer.value:
        raise OutcomeUnknown
    return answer.value[0]
