"""The runtime ports on asyncio, for production.

The composition root calls `run`; everything else sees only `ports.runtime`. A task that raises ends
the program, as in the simulation, so that nothing continues beside a task that died unnoticed.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import TypeVar

T = TypeVar("T")

# Counts during suspend, as the tenure's arithmetic requires; Linux only.
_BOOT_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
_MS = 1_000_000  # nanoseconds


class AsyncioClock:
    def now(self) -> int:
        return time.time_ns() // _MS

    def monotonic(self) -> int:
        return time.clock_gettime_ns(_BOOT_CLOCK) // _MS

    async def sleep(self, ms: int) -> None:
        due = self.monotonic() + ms
        await asyncio.sleep(max(ms, 0) / 1000)
        while (left := due - self.monotonic()) > 0:  # the loop's clock may run ahead of ours
            await asyncio.sleep(left / 1000)


class AsyncioSignal:
    def __init__(self) -> None:
        self._is_set = False
        self._waiter: asyncio.Future[bool] | None = None

    def set(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(True)
        else:
            self._is_set = True

    async def wait(self, timeout_ms: int | None) -> bool:
        if self._is_set:
            self._is_set = False
            return True
        assert self._waiter is None, "a signal has one waiter at a time"
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[bool] = loop.create_future()
        self._waiter = waiter
        timer = None
        if timeout_ms is not None:
            timer = loop.call_later(max(timeout_ms, 0) / 1000, _give_up, waiter)
        try:
            return await waiter
        finally:
            self._waiter = None
            if timer is not None:
                timer.cancel()


class AsyncioTask:
    def __init__(self, task: "asyncio.Task[object]") -> None:
        self._task = task

    def cancel(self) -> None:
        self._task.cancel()


class AsyncioTasks:
    """Keeps references to the running tasks, and records the first failure of one."""

    def __init__(self) -> None:
        self._running: dict[asyncio.Task[object], None] = {}  # in order of start
        self._failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def spawn(self, name: str, coroutine: Coroutine[object, object, object]) -> AsyncioTask:
        task: asyncio.Task[object] = asyncio.get_running_loop().create_task(
            _as_any(coroutine), name=name
        )
        self._running[task] = None
        task.add_done_callback(self._on_done)
        # A task cancelled before its first step would otherwise be reported as never awaited.
        task.add_done_callback(lambda _: coroutine.close())
        return AsyncioTask(task)

    def signal(self) -> AsyncioSignal:
        return AsyncioSignal()

    async def supervise(self, main: Coroutine[object, object, T]) -> T:
        """Return the result of `main`, or raise the first exception of `main` or of any task. At
        the end, cancel all tasks, newest first, and wait until they have ended."""
        leader: asyncio.Task[T] = asyncio.get_running_loop().create_task(_as_any(main), name="main")
        self._failure.add_done_callback(lambda _: leader.cancel())
        try:
            return await leader
        except asyncio.CancelledError:
            if self._failure.done():
                self._failure.result()
            raise
        finally:
            await self._stop_all()
            if not self._failure.done():
                self._failure.cancel()

    async def _stop_all(self) -> None:
        for task in reversed(list(self._running)):
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def _on_done(self, task: "asyncio.Task[object]") -> None:
        self._running.pop(task, None)
        if task.cancelled():
            return
        error = task.exception()
        if error is not None and not self._failure.done():
            error.add_note(f"in task {task.get_name()}")
            self._failure.set_exception(error)


def run(main: Callable[[AsyncioClock, AsyncioTasks], Coroutine[object, object, T]]) -> T:
    """Run `main` with a real clock and real tasks until it ends or any task fails."""

    async def supervised() -> T:
        tasks = AsyncioTasks()
        return await tasks.supervise(main(AsyncioClock(), tasks))

    return asyncio.run(supervised())


async def _as_any(coroutine: Coroutine[object, object, T]) -> T:
    """Return the coroutine under the type that asyncio expects, whose send type is Any."""
    return await coroutine


def _give_up(waiter: "asyncio.Future[bool]") -> None:
    if not waiter.done():
        waiter.set_result(False)
