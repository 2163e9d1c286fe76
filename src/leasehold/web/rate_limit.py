"""Limits each visitor's load on the controller.

A visitor gets one question at a time and, after an initial burst, half a CPU core. Further
questions are delayed. Called by `answer_cache` for answers that are not cached. Only the CPU time
of the question itself counts, not other work of the process in the meantime.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, Generator
from types import coroutine
from typing import TypeVar

from leasehold.web.dependencies import NotShown

BURST_S = 3.0  # CPU time before a visitor is delayed
WAIT_S_MAX = 5.0  # maximum delay of one answer
WAITING_MAX = 64  # waiting questions per visitor
KNOWN_MAX = 1024

T = TypeVar("T")


class _Visits:
    __slots__ = ("one", "rests_until", "waiting")

    def __init__(self) -> None:
        self.one = asyncio.Lock()
        self.waiting = 0
        self.rests_until = 0.0  # end of the pause owed for earlier questions


class RateLimit:
    def __init__(
        self,
        *,
        now: Callable[[], float] = time.monotonic,
        work: Callable[[], float] = time.thread_time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._now = now
        self._work = work
        self._sleep = sleep
        self._of: dict[str, _Visits] = {}

    async def take(self, user: str, ask: Callable[[], Awaitable[T]]) -> T:
        """Call `ask` when it is this visitor's turn, and return its result. Raise `NotShown` if too
        many questions of this visitor are waiting already."""
        visits = self._of.get(user) or self._new(user)
        if visits.waiting >= WAITING_MAX:
            raise NotShown(
                429, f"{WAITING_MAX} of your requests are waiting for an answer; try again later"
            )
        visits.waiting += 1
        try:
            async with visits.one:
                owed = visits.rests_until - self._now() - BURST_S
                if owed > 0:
                    await self._sleep(min(owed, WAIT_S_MAX))
                spent = [0.0]
                try:
                    return await _counted(ask(), spent, self._work)
                finally:
                    began = max(self._now(), visits.rests_until)
                    visits.rests_until = began + 2 * spent[0]
        finally:
            visits.waiting -= 1

    def _new(self, user: str) -> _Visits:
        if len(self._of) >= KNOWN_MAX:
            now = self._now()
            busy = {
                name: each
                for name, each in self._of.items()
                if each.waiting or each.rests_until > now
            }
            self._of = busy
        found = self._of[user] = _Visits()
        return found


@coroutine
def _counted(
    asked: Awaitable[T], spent: list[float], work: Callable[[], float]
) -> Generator[object, object, T]:
    """Await `asked`, and add the CPU time that it takes to `spent`. The clock `work` is read at
    each resumption and at the wait that follows."""
    steps = asked.__await__()
    step: Callable[[], object] = lambda: next(steps)  # noqa: E731 - another one each time
    while True:
        began = work()
        try:
            waits = step()
        except StopIteration as done:
            value: T = done.value
            return value
        finally:
            spent[0] += work() - began
        try:
            sent = yield waits
        except BaseException as error:
            thrown = error
            step = lambda: steps.throw(thrown)  # noqa: B023, E731 - used before the next
        else:
            step = lambda: steps.send(sent)  # noqa: B023, E731 - used before the next
