"""All objects of one kind, for as long as it takes: what there is, then every change, for ever.

Whoever needs to know a kind follows it here, over the port: the loop, the agent, contenders for a
tenure, simulated nodes. A watch that breaks is begun again from a fresh list, which is shown as
such: between the two anything may have changed, and only the follower knows what it had seen.
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
    """Never returns. `since` is the version of a list that the follower has seen already; `pause`
    is after trouble that is no mere end of a watch. What `listed` or `changed` raises ends it."""
    version = since
    while True:
        if version is None:
            listing = await until_answered(clock, lambda: store.list(kind))
            listed(listing)
            version = listing.version
        try:
            await _watch(store, kind, version, changed)
        except WatchExpired:
            await clock.sleep(0)  # somebody else's turn, if watches end as soon as they begin
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
