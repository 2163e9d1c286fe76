"""Checks that an expired tenure is never renewed, and that a released one is not considered valid.

A holder that was paused may find its record unchanged, because no other process has taken over yet.
It must not write that record: this would delay the contenders, and would be a renewal without
ownership. A tenure must become invalid before its release is sent: the answer may be lost, and the
next holder does not wait.
"""

from collections.abc import Callable

from leasehold.core.names import Wire
from leasehold.ports.runtime import Clock, Tasks
from leasehold.ports.store import Store
from leasehold.ports.tenure import Margins, Released, Renewed, Tenure
from leasehold.shell.leadership.tenure import StoreTenures
from leasehold.sim.store_wrapper import StoreAround


class WatchedUpdates(StoreAround):
    def __init__(self, store: Store, on_update: Callable[[], None]) -> None:
        super().__init__(store)
        self._on_update = on_update

    async def update(self, obj: Wire) -> Wire:
        self._on_update()
        return await self._store.update(obj)


class WatchedTenures(StoreTenures):
    """The shipped tenures, with checks of each write. One process calls them one after another, and
    nothing else writes in between."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        tasks: Tasks,
        *,
        margins: Margins,
        fail: Callable[[str], None],
    ) -> None:
        super().__init__(WatchedUpdates(store, self._on_update), clock, tasks, margins=margins)
        self._fail = fail
        self._updates = 0
        self._given_back: Tenure | None = None  # during a release

    async def renew(self, tenure: Tenure) -> Renewed:
        was_valid, before = self.is_valid(tenure), self._updates
        renewed = await super().renew(tenure)
        if not was_valid and self._updates != before:
            who = tenure.holder.identity
            self._fail(f"RenewalRequiresOwnership: {who} wrote over a tenure that was over for it")
        return renewed

    async def release(self, tenure: Tenure) -> Released:
        self._given_back = tenure
        try:
            return await super().release(tenure)
        finally:
            self._given_back = None

    def _on_update(self) -> None:
        self._updates += 1
        if self._given_back is not None and self.is_valid(self._given_back):
            who = self._given_back.holder.identity
            self._fail(f"BeliefConsistency: {who} gives its tenure back, and believes in it still")
