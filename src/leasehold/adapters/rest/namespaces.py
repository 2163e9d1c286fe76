"""Namespace deletion: deletes the contents, runs first, and then the namespace itself.

A task of the REST server, because our own server has no garbage collector. The state Terminating is
in the store, so after a restart the new process continues.
"""

import asyncio
from contextlib import suppress

import structlog

from leasehold.adapters.api.resources import RESOURCES
from leasehold.adapters.following import follow
from leasehold.adapters.objects.store import ObjectStore
from leasehold.adapters.rest.incoming import CONTENTS
from leasehold.core.names import Wire
from leasehold.core.objects.wire import list_at, part, stamps
from leasehold.ports.runtime import Clock
from leasehold.ports.store import Conflict, Listing, NotFound, StoreError, WatchEvent

RECHECK_S = 0.5  # while objects are left in a terminating namespace

_log = structlog.get_logger(__name__)
_KINDS = tuple(each.kind for each in RESOURCES if each.is_namespaced and each.kind != "Run")


class NamespaceDeletion:
    def __init__(self, store: ObjectStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._going: dict[str, Wire] = {}
        self._is_news = asyncio.Event()

    async def run(self) -> None:
        """Empty terminating namespaces and remove them. Errors of the store are retried; end only
        if following the namespaces fails."""
        following = asyncio.ensure_future(
            follow(self._store, self._clock, "Namespace", listed=self._see_all, changed=self._hear)
        )
        following.add_done_callback(lambda _: self._is_news.set())
        try:
            while not following.done():
                await self._clear_all()
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._is_news.wait(), RECHECK_S if self._going else None)
                self._is_news.clear()
            following.result()
        finally:
            following.cancel()

    def _see_all(self, listing: Listing) -> None:
        self._going.clear()
        for obj in listing.items:
            self._see(obj)

    def _hear(self, event: WatchEvent) -> None:
        if event.type == "DELETED":
            self._going.pop(stamps(event.object).name, None)
        else:
            self._see(event.object)

    def _see(self, obj: Wire) -> None:
        stamped = stamps(obj)
        if stamped.is_deleting:
            self._going[stamped.name] = obj
            self._is_news.set()

    async def _clear_all(self) -> None:
        try:
            for obj in list(self._going.values()):
                await self._clear(obj)
        except StoreError as error:
            _log.warning("namespace not cleared yet", why=str(error))

    async def _clear(self, obj: Wire) -> None:
        """Do the next step for one namespace: delete its runs; then, when none is left, its other
        objects; then remove the finalizer that keeps the namespace."""
        name = stamps(obj).name
        if await self._delete_all("Run", name):
            return  # the control loop ends their pods and leases
        left = 0
        for kind in _KINDS:
            left += await self._delete_all(kind, name)
        if left:
            return
        metadata = part(obj, "metadata")
        held = [str(each) for each in list_at(metadata, "finalizers")]
        kept = [each for each in held if each != CONTENTS]
        with suppress(Conflict, NotFound):  # changed meanwhile; the next round handles it
            await self._store.set_finalizers("Namespace", "", name, kept, known=held)

    async def _delete_all(self, kind: str, namespace: str) -> int:
        """Delete all objects of a kind in the namespace. Return how many still exist, including
        those that are being deleted."""
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
