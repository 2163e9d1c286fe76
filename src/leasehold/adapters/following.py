"""Follows all objects of one kind: a listing, then every change, for ever.

Used by the loop, the agent, contenders for the tenure and simulated nodes, over the Store port.
When a watch breaks, the follower lists all objects again and passes the whole listing on. Anything
may have changed in between, and only the caller knows which objects it had seen.
"""

from collections.abc import Callable

from leasehold.adapters.retry import FIRST_MS, until_answered
from leasehold.core.units import Millis
from leasehold.ports.runtime import Clock
from leasehold.ports.store import Listing, Store, StoreError, WatchEvent, WatchExpired

Listed = Callable[[Listing], None]
Changed = Callable[[WatchEvent], None]


async def follow(
    store: Store,
    clock: Clock,
    kind: str,
    *,
    listed: Listed,
    changed: Changed,
    since: int | None = None,
    pause: Millis = FIRST_MS,
) -> None:
    """Follow the objects of a kind; never return.

    Call `listed` with each listing, and `changed` with each change after it. `since` is the version
    of a listing that the caller has already, so that the first one is skipped. `pause` is the wait
    after an error other than an expired watch. Exceptions of `listed` and `changed` propagate."""
    version = since
    while True:
        if version is None:
            listing = await until_answered(clock, lambda: store.list(kind))
            listed(listing)
            version = listing.version
        try:
            await _watch(store, kind, version, changed)
        except WatchExpired:
            await clock.sleep(0)  # let others run, if watches end as soon as they begin
        except StoreError:
            await clock.sleep(pause)
        version = None


async def _watch(store: Store, kind: str, version: int, changed: Changed) -> None:
    watch = store.watch(kind, version)
    try:
        while True:
            changed(await watch.next())
    finally:
        watch.close()
