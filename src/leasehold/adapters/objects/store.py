"""`ports.store.Store` over a shelf: what `adapters.memory` and `adapters.sqlite` have in common.

Reads go to the pages and writes through the manners; a watch reads the changes that the shelf kept,
and sleeps until somebody rings. Here no call but a watch's ever suspends; a store that must wait
for a write says so in `_perform`.
"""

from collections.abc import Callable
from typing import TypeVar

from leasehold.adapters.objects.manners import Manners
from leasehold.adapters.objects.shelf import Pages, decode, encode
from leasehold.ports.runtime import Tasks
from leasehold.ports.store import Expired, Listing, NotFound, WatchEvent, Wire

T = TypeVar("T")


class Bells:
    """Who waits for the next change of which kind."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[Callable[[], None]]] = {}

    def wait_for(self, kind: str, wake: Callable[[], None]) -> None:
        self._waiting.setdefault(kind, []).append(wake)

    def ring(self, kind: str) -> None:
        for wake in self._waiting.pop(kind, []):
            wake()

    def ring_all(self) -> None:
        for kind in list(self._waiting):
            self.ring(kind)


class ObjectStore:
    def __init__(self, tasks: Tasks, bells: Bells, pages: Pages, manners: Manners) -> None:
        self._tasks = tasks
        self._bells = bells
        self._pages = pages
        self._manners = manners

    async def get(self, kind: str, namespace: str, name: str) -> Wire:
        stored = self._pages.read((kind, namespace, name))
        if stored is None:
            raise NotFound(kind, namespace, name)
        return decode(stored)

    async def list(self, kind: str) -> Listing:
        stored, version = self._pages.read_all(kind)
        return Listing([decode(body) for body in stored], version)

    def watch(self, kind: str, version: int) -> "ObjectWatch":
        return ObjectWatch(self._tasks, self._bells, self._pages, kind=kind, version=version)

    async def create(self, obj: Wire) -> Wire:
        given = encode(obj)
        return await self._perform(lambda: self._manners.create(given))

    async def update(self, obj: Wire) -> Wire:
        given = encode(obj)
        return await self._perform(lambda: self._manners.update(given))

    async def patch_status(
        self, kind: str, namespace: str, name: str, status: Wire, *, version: int | None
    ) -> Wire:
        key, given = (kind, namespace, name), encode(status)
        return await self._perform(lambda: self._manners.patch_status(key, given, version=version))

    async def delete(
        self, kind: str, namespace: str, name: str, *, uid: str | None, grace_ms: int | None = None
    ) -> None:
        key = (kind, namespace, name)
        await self._perform(lambda: self._manners.delete(key, uid=uid, grace_ms=grace_ms))

    async def _perform(self, write: Callable[[], T]) -> T:
        return write()


class ObjectWatch:
    """A reader of one kind's changes; it wakes when there is another."""

    def __init__(
        self, tasks: Tasks, bells: Bells, pages: Pages, *, kind: str, version: int
    ) -> None:
        self._bells = bells
        self._pages = pages
        self._signal = tasks.signal()
        self._kind = kind
        self._version = version
        self._closed = version > pages.version  # one we never gave out is another store's

    async def next(self) -> WatchEvent:
        while not self._closed:
            change = self._pages.next_change(self._kind, self._version)
            if change is not None:
                self._version = change.version
                return WatchEvent(change.event, decode(change.body))
            self._bells.wait_for(self._kind, self._signal.set)
            await self._signal.wait(None)
        raise Expired

    def close(self) -> None:
        self._closed = True
        self._signal.set()
