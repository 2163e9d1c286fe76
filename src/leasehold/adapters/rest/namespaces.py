"""Deleting a Namespace: what is in it goes first, runs before anything else, and then itself.

A task of the facade, since no other server collects garbage for us. It holds no state: what is
Terminating says so in the store, so that a restart goes on where the last process stopped.
"""

from contextlib import suppress

import structlog

from leasehold.adapters.api.resources import RESOURCES
from leasehold.adapters.objects.store import ObjectStore
from leasehold.adapters.rest.incoming import CONTENTS
from leasehold.core.objects.wire import list_at, part, stamps
from leasehold.core.units import SECOND
from leasehold.ports.runtime import Clock
from leasehold.ports.store import Conflict, Expired, NotFound, StoreError, Wire

RECHECK_MS = SECOND // 2  # while something in a namespace that goes has not gone yet

_log = structlog.get_logger(__name__)
_KINDS = tuple(each.kind for each in RESOURCES if each.is_namespaced and each.kind != "Run")


class Clearing:
    def __init__(self, store: ObjectStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def run(self) -> None:
        """For ever; a store that is in trouble is asked again later."""
        while True:
            listing = await self._store.list("Namespace")
            going = [obj for obj in listing.items if stamps(obj).is_deleting]
            try:
                for obj in going:
                    await self._clear(obj)
            except StoreError as error:
                _log.warning("namespace not cleared yet", why=str(error))
            await self._wait(listing.version, RECHECK_MS if going else None)

    async def _wait(self, version: int, timeout_ms: int | None) -> None:
        watch = self._store.watch("Namespace", version)
        try:
            with suppress(Expired):
                await watch.next_stored(timeout_ms)
        finally:
            watch.close()

    async def _clear(self, obj: Wire) -> None:
        """One step: runs are asked to go, then the rest, then the namespace is let go of."""
        name = stamps(obj).name
        if await self._delete_all("Run", name):
            return  # their pods and leases are the control loop's to end
        left = 0
        for kind in _KINDS:
            left += await self._delete_all(kind, name)
        if left:
            return
        metadata = part(obj, "metadata")
        kept = [each for each in list_at(metadata, "finalizers") if each != CONTENTS]
        with suppress(Conflict, NotFound):  # changed meanwhile: the next round sees it
            await self._store.update({**obj, "metadata": {**metadata, "finalizers": kept}})

    async def _delete_all(self, kind: str, namespace: str) -> int:
        """How many are left, those that were asked to go among them."""
        found = [
            obj
            for obj in (await self._store.list(kind)).items
            if stamps(obj).namespace == namespace
        ]
        left = 0
        for obj in found:
            stamped = stamps(obj)
            with suppress(NotFound, Conflict):
                if not stamped.is_deleting:
                    await self._store.delete(kind, namespace, stamped.name, uid=stamped.uid)
                await self._store.get(kind, namespace, stamped.name)
                left += 1
        return left
