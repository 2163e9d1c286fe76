"""Time and concurrency as `shell` sees them: a clock, tasks, and a signal to wait for.

Implemented by `sim.kernel` (virtual time, seeded order) and by `adapters.asyncio_runtime`. Code in
`shell` awaits these and the other ports, never asyncio itself, so that the simulator runs the code
we ship. There is no queue, future or lock here: state is shared between tasks of one process, which
switch only at an await, and a signal says that it changed.
"""

from collections.abc import Coroutine
from typing import Protocol


class Clock(Protocol):
    def now(self) -> int:
        """Milliseconds UTC by the wall. May jump either way: never compare two machines' values."""
        ...

    def monotonic(self) -> int:
        """Milliseconds from an arbitrary start; goes on during suspend and never goes back."""
        ...

    async def sleep(self, ms: int) -> None:
        """Returns after `ms` of monotonic time; with 0 or less other ready tasks go first."""
        ...


class Signal(Protocol):
    """A flag with at most one task waiting for it. Setting it twice is setting it once."""

    def set(self) -> None: ...

    async def wait(self, timeout_ms: int | None) -> bool:
        """True once it was set, and clears it; False when the time-out came first."""
        ...


class Task(Protocol):
    def cancel(self) -> None:
        """It ends at its next await, its `finally` blocks run. Harmless when it has ended."""
        ...


class Tasks(Protocol):
    def spawn(self, name: str, coroutine: Coroutine[object, object, object]) -> Task:
        """Starts it; it first runs when the caller awaits. An exception out of it is fatal."""
        ...

    def signal(self) -> Signal: ...
