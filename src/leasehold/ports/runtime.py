"""Ports for time and concurrency in `shell`: a clock, tasks and signals.

Implemented by `sim.kernel` (virtual time, seeded order) and by `adapters.asyncio_runtime`. Code in
`shell` awaits only these and the other ports, never asyncio itself, so the simulator runs the code
that ships. There are no queues, futures or locks: tasks of one process share state, switch only at
an await, and set a signal after a change.
"""

from collections.abc import Coroutine
from typing import Protocol


class Clock(Protocol):
    def now(self) -> int:
        """Return ms UTC by the wall clock.

        The clock may jump. Never compare the values of two machines.
        """
        ...

    def monotonic(self) -> int:
        """Return ms since an arbitrary start. The value never goes back, and counts time of
        suspend."""
        ...

    async def sleep(self, ms: int) -> None:
        """Return after `ms` of monotonic time. With 0 or less, let other ready tasks run first."""
        ...


class Signal(Protocol):
    """A flag with at most one waiting task. Setting it twice is the same as setting it once."""

    def set(self) -> None: ...

    async def wait(self, timeout_ms: int | None) -> bool:
        """Wait for the flag and clear it: True if it was set, False if the timeout came first."""
        ...


class Task(Protocol):
    def cancel(self) -> None:
        """Stop the task at its next await; its `finally` blocks run. Does nothing if the task has
        ended."""
        ...


class Tasks(Protocol):
    def spawn(self, name: str, coroutine: Coroutine[object, object, object]) -> Task:
        """Start a task; it first runs when the caller awaits.

        An exception that leaves the task is fatal to the process.
        """
        ...

    def signal(self) -> Signal: ...
