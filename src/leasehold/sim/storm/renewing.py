"""Whether a tenure that is over by its holder's own clock is left alone: nothing is written for it.

Who stood still may find its record as it left it, since nobody has taken over yet. To write that
again would put off whoever waits, and be a renewal by somebody who does not hold it any more.
"""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from leasehold.core.names import Wire
from leasehold.ports.runtime import Clock, Tasks
from leasehold.ports.store import Store
from leasehold.ports.tenure import Margins, Renewed, Tenure
from leasehold.shell.tenure import StoreTenures
from leasehold.sim.around import StoreAround

T = TypeVar("T")


class CountedUpdates(StoreAround):
    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.updates = 0

    async def _call(self, verb: str, kind: str, call: Callable[[], Awaitable[T]]) -> T:  # noqa: ARG002
        return await call()

    async def update(self, obj: Wire) -> Wire:
        self.updates += 1
        return await self._store.update(obj)


class WatchedTenures(StoreTenures):
    """The shipped one. One renewal is under way at a time, and nothing else is written then."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        tasks: Tasks,
        *,
        margins: Margins,
        fail: Callable[[str], None],
    ) -> None:
        self._counted = CountedUpdates(store)
        super().__init__(self._counted, clock, tasks, margins=margins)
        self._fail = fail

    async def renew(self, tenure: Tenure) -> Renewed:
        was_valid, before = self.is_valid(tenure), self._counted.updates
        renewed = await super().renew(tenure)
        if not was_valid and self._counted.updates != before:
            who = tenure.holder.identity
            self._fail(f"RenewalRequiresOwnership: {who} wrote over a tenure that was over for it")
        return renewed
