"""A store that calls the nemesis before and after each call; the nemesis may kill or pause the
process at that point.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from leasehold.ports.store import Answers, Create, Store, Write, written_object
from leasehold.sim.store_wrapper import StoreAround

T = TypeVar("T")
Pass = Callable[[str], Awaitable[None]]


class PointedStore(StoreAround):
    """A store that awaits `reach` before and after each call, with a point such as "before update
    LedgerHead"."""

    def __init__(self, store: Store, reach: Pass) -> None:
        super().__init__(store)
        self._reach = reach

    async def write_all(self, writes: Sequence[Write]) -> Answers:
        if any(isinstance(write, Create) and written_object(write)[0] == "Pod" for write in writes):
            await self._reach("before make Pod")  # even if other writes are sent along
        return await super().write_all(writes)

    async def _call(self, verb: str, kind: str, call: Callable[[], Awaitable[T]]) -> T:
        await self._reach(f"before {verb} {kind}")
        result = await call()
        await self._reach(f"after {verb} {kind}")
        return result
