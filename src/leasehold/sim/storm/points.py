"""A store whose every call is a moment at which something may happen to the caller.

The nemesis is told before and after each of them, and may end or stop the process right there.
"""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from leasehold.ports.store import Store
from leasehold.sim.around import StoreAround

T = TypeVar("T")
Pass = Callable[[str], Awaitable[None]]


class PointedStore(StoreAround):
    """`reach` is awaited at every point, such as "before update LedgerHead"."""

    def __init__(self, store: Store, reach: Pass) -> None:
        super().__init__(store)
        self._reach = reach

    async def _call(self, verb: str, kind: str, call: Callable[[], Awaitable[T]]) -> T:
        await self._reach(f"before {verb} {kind}")
        result = await call()
        await self._reach(f"after {verb} {kind}")
        return result
