"""`ports.store.Store` over any `Storage`: the common part of `adapters.memory` and
`adapters.sqlite`.

Reads go to storage, writes through `writes`; a watch reads stored changes and sleeps until it is
woken. Only watches suspend here. A store that must wait for a write overrides `_perform`.
"""

from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from leasehold.adapters.objects.storage import (
    Change,
    NamedBody,
    NamespacedName,
    PastChange,
    StoredObjects,
    decode,
    encode,
)
from leasehold.adapters.objects.writes import ObjectWrites
from leasehold.core.names import Wire
from leasehold.ports.runtime import Tasks
from leasehold.ports.store import (
    Answer,
    Answers,
    Bind,
    Create,
    Delete,
    Listing,
    NotFound,
    PatchStatus,
    SetFinalizers,
    StoreError,
    Unavailable,
    Update,
    WatchEvent,
    WatchExpired,
    Write,
)

T = TypeVar("T")

AHEAD_MAX = 64  # maximum number of changes that a watch reads at once


class ChangeWaiters:
    """For each kind, the callbacks to call at the next change of an object of that kind."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[Callable[[], None]]] = {}

    def wait_for(self, kind: str, wake: Callable[[], None]) -> None:
        self._waiting.setdefault(kind, []).append(wake)

    def wake(self, kind: str) -> None:
        for wake in self._waiting.pop(kind, []):
            wake()

    def wake_for(self, changes: Sequence[Change]) -> None:
        for kind in dict.fromkeys(change.key[0] for change in changes):
            self.wake(kind)

    def wake_all(self) -> None:
        for kind in list(self._waiting):
            self.wake(kind)


class ObjectStore:
    def __init__(
        self, tasks: Tasks, waiters: ChangeWaiters, objects: StoredObjects, writes: ObjectWrites
    ) -> None:
        self._tasks = tasks
        self._waiters = waiters
        self._objects = objects
        self._writes = writes

    async def get(self, kind: str, namespace: str, name: str) -> Wire:
        return decode(self.stored(kind, namespace, name))

    async def list(self, kind: str) -> Listing:
        stored, version = self._objects.read_all(kind)
        return Listing([decode(body) for body in stored], version)

    def stored(self, kind: str, namespace: str, name: str) -> bytes:
        """Return the stored bytes of an object, for callers that pass them on unchanged."""
        stored = self._objects.read((kind, namespace, name))
        if stored is None:
            raise NotFound(kind, namespace, name)
        return stored

    def stored_all(self, kind: str, namespace: str | None = None) -> tuple[Sequence[bytes], int]:
        """Return the same as `list`, but as bytes; with a namespace, only the objects in it."""
        return self._objects.read_all(kind, namespace)

    def stored_page(
        self, kind: str, namespace: str | None, *, after: NamespacedName, count: int
    ) -> tuple[Sequence[NamedBody], int]:
        """Return at most `count` objects of `stored_all` that follow (namespace, name) `after`,
        with their namespaces and names, and the version."""
        return self._objects.read_page(kind, namespace, after=after, count=count)

    @property
    def version(self) -> int:
        """The version of the last change of any kind."""
        return self._objects.version

    async def scan(self, kind: str, see: Callable[[bytes], None]) -> int:
        return self._objects.scan(kind, see)

    def watch(self, kind: str, version: int) -> "ObjectWatch":
        return ObjectWatch(self._tasks, self._waiters, self._objects, kind=kind, version=version)

    async def create(self, obj: Wire, *, rehearse: bool = False) -> Wire:
        """Create an object. If `rehearse` is True, return the same answer but store nothing; the
        other methods of this class that have `rehearse` do the same."""
        given = encode(obj)
        return await self._perform(lambda: self._writes.create(given, rehearse=rehearse))

    async def update(self, obj: Wire, *, rehearse: bool = False) -> Wire:
        given = encode(obj)
        return await self._perform(lambda: self._writes.update(given, rehearse=rehearse))

    async def patch_status(
        self,
        kind: str,
        namespace: str,
        name: str,
        status: Wire,
        *,
        version: int | None,
        stamp: bool = True,
        rehearse: bool = False,
    ) -> Wire:
        """Replace the status. If `stamp` is True, conditions without `lastTransitionTime` get
        one."""
        key, given = (kind, namespace, name), encode(status)
        return await self._perform(
            lambda: self._writes.patch_status(
                key, given, version=version, stamp=stamp, rehearse=rehearse
            )
        )

    async def bind(
        self, namespace: str, name: str, node: str, *, uid: str, version: int | None = None
    ) -> None:
        key = ("Pod", namespace, name)
        await self._perform(lambda: self._writes.bind(key, node, uid=uid, version=version))

    async def set_finalizers(
        self,
        kind: str,
        namespace: str,
        name: str,
        finalizers: Sequence[str],
        *,
        known: Sequence[str],
        uid: str | None = None,
    ) -> Wire:
        key, wanted, held = (kind, namespace, name), tuple(finalizers), tuple(known)
        return await self._perform(
            lambda: self._writes.set_finalizers(key, wanted, known=held, uid=uid)
        )

    async def delete(
        self,
        kind: str,
        namespace: str,
        name: str,
        *,
        uid: str | None,
        grace_ms: int | None = None,
        version: int | None = None,
        rehearse: bool = False,
    ) -> None:
        key = (kind, namespace, name)
        await self._perform(
            lambda: self._writes.delete(
                key, uid=uid, grace_ms=grace_ms, version=version, rehearse=rehearse
            )
        )

    async def write_all(self, writes: Sequence[Write]) -> Answers:
        attempts = [self._attempt(write) for write in writes]
        return await self._perform(lambda: [_answer(attempt) for attempt in attempts])

    def _attempt(self, write: Write) -> Callable[[], Wire | None]:
        """Return the write as a function. Its arguments are encoded now, because the caller may
        change them later."""
        match write:
            case Create(obj):
                given = encode(obj)
                return lambda: self._writes.create(given)
            case Update(obj):
                given = encode(obj)
                return lambda: self._writes.update(given)
            case PatchStatus(kind, namespace, name, status, version):
                given, key = encode(status), (kind, namespace, name)
                return lambda: self._writes.patch_status(key, given, version=version, stamp=True)
            case Bind(namespace, name, node, uid, version):
                key = ("Pod", namespace, name)
                return partial(self._writes.bind, key, node, uid=uid, version=version)
            case SetFinalizers(kind, namespace, name, finalizers, known, uid):
                key = (kind, namespace, name)
                return partial(self._writes.set_finalizers, key, finalizers, known=known, uid=uid)
            case Delete(kind, namespace, name, uid, grace_ms, version):
                key = (kind, namespace, name)
                return lambda: self._writes.delete(key, uid=uid, grace_ms=grace_ms, version=version)

    async def _perform(self, write: Callable[[], T]) -> T:
        return write()


def _answer(attempt: Callable[[], Wire | None]) -> Answer:
    try:
        return attempt()
    except Unavailable:
        raise  # trouble of the storage itself, which concerns all writes
    except StoreError as error:
        return error


class ObjectWatch:
    """Reads the changes of one kind, and sleeps until there are more."""

    def __init__(
        self,
        tasks: Tasks,
        waiters: ChangeWaiters,
        objects: StoredObjects,
        *,
        kind: str,
        version: int,
    ) -> None:
        self._waiters = waiters
        self._objects = objects
        self._signal = tasks.signal()
        self._kind = kind
        self._version = version
        self._closed = version > objects.version  # not issued by this store
        self._ahead: deque[PastChange] = deque()  # read in batches, because each read has a cost
        self._is_listed = False  # registered in `waiters`

    async def next(self) -> WatchEvent:
        change = await self.next_stored(None)
        assert change is not None, "it had all the time there is"
        return WatchEvent(change.event, change.version, partial(decode, change.body))

    async def next_stored(self, timeout_ms: int | None) -> PastChange | None:
        """Return the next change as bytes; None if none came within the timeout."""
        while not self._closed:
            if not self._ahead:
                self._ahead += self._objects.next_changes(
                    self._kind, self._version, count=AHEAD_MAX
                )
            if self._ahead:
                change = self._ahead.popleft()
                self._version = change.version
                return change
            if not self._is_listed:
                self._is_listed = True
                self._waiters.wait_for(self._kind, self._wake)
            if not await self._signal.wait(timeout_ms) and not self._closed:
                return None
        raise WatchExpired

    def _wake(self) -> None:
        self._is_listed = False
        self._signal.set()

    def close(self) -> None:
        self._closed = True
        self._signal.set()
