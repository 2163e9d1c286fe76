"""A service that runs beside a test, in its own thread with its own event loop."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")
DEADLINE_S = 30


class Beside:
    """Runs the coroutine `_live`, which must set `_is_up` as soon as the service can be used.

    A subclass must set its own fields before it calls `__init__`, which returns when `_is_up` is
    set.
    """

    deadline_s = DEADLINE_S

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._is_up = threading.Event()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()
        assert self._is_up.wait(self.deadline_s), f"{type(self).__name__} does not come up"

    async def _live(self) -> None:
        raise NotImplementedError

    def do(self, action: Callable[[], T]) -> T:
        """Call `action` on the service's loop, so that no other code sees its state meanwhile."""

        async def act() -> T:
            return action()

        return self.ask(act)

    def ask(self, call: Callable[[], Awaitable[T]]) -> T:
        async def act() -> T:
            return await call()

        return asyncio.run_coroutine_threadsafe(act(), self._loop).result(self.deadline_s)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._main.cancel)
        self.ended()

    def ended(self) -> None:
        """Wait until the service has stopped."""
        self._thread.join(self.deadline_s)
        assert not self._thread.is_alive(), f"{type(self).__name__} does not end"

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._main = self._loop.create_task(self._live())
        try:
            self._loop.run_until_complete(self._main)
        except asyncio.CancelledError:
            pass
        finally:
            self._loop.close()
