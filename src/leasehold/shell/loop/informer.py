"""Watches the kinds of objects that the loop needs, and passes events on in the store's order.

One task per kind puts events into the inbox. An object that vanished while the watch was broken is
reported as deleted. Nothing is decided here: events only wake the loop. A status change is not an
event for the inbox; it is passed to the component that writes that status, which thereby detects
writes by other processes.
"""

from collections.abc import Callable

import msgspec

from leasehold.adapters.following import follow
from leasehold.core.facts import Record
from leasehold.core.names import Wire
from leasehold.core.objects.wire import part, version_at
from leasehold.ports.runtime import Clock, Signal
from leasehold.ports.store import Listing, Store, WatchEvent

_encode = msgspec.json.Encoder(order="deterministic").encode
_decode = msgspec.json.Decoder(dict[str, object]).decode
_OURS_IS_STATUS = ("Budget", "Run")
_WRITTEN_BY_STORES = ("resourceVersion", "managedFields")

# Called for each write to an object of a kind; returns whether its status must be corrected.
Hear = Callable[[str, Wire], bool]


class News(Record):
    """An event: an object's current state, or, if `gone`, the last known state of a deleted
    object."""

    kind: str
    gone: bool
    obj: Wire


class Informer:
    """Watches the objects of one kind; `run` never returns."""

    def __init__(
        self,
        kind: str,
        *,
        store: Store,
        clock: Clock,
        inbox: list[News],
        wake: Signal,
        hear: Hear = lambda _kind, _obj: False,
    ) -> None:
        """`hear` is called with each object whose status may have been written, by anyone."""
        self._hear_status = hear
        self._kind = kind
        self._store = store
        self._clock = clock
        self._inbox = inbox
        self._wake = wake
        self._version = 0  # of the last event
        # What this process created, as (key, body), by the version of the expected event.
        self._own: dict[int, tuple[str, bytes]] = {}
        # Known objects, encoded: as dictionaries, ten thousand Runs would take most of the memory.
        # Kinds that users write are kept without our status.
        self._there: dict[str, bytes] = {}

    def expect(self, obj: Wire) -> None:
        """Ignore the event of a creation by this process; `obj` is the created object. Only
        creations can be ignored: an update that changes nothing returns a version that another
        process may have written."""
        version = version_at(part(obj, "metadata"))
        if version > self._version:  # otherwise the event has already come
            self._own[version] = (_key(obj), self._kept(obj))

    async def run(self, version: int, there: list[bytes]) -> None:
        for body in there:
            obj = _decode(body)
            self._there[_key(obj)] = self._kept(obj)
        there.clear()  # many, and not needed any more
        self._version = version
        await follow(
            self._store,
            self._clock,
            self._kind,
            since=version,
            listed=self._compare,
            changed=self._hear,
        )

    def _hear(self, event: WatchEvent) -> None:
        self._version = event.version
        if event.version in self._own:
            self._note_own(event.version)
            return
        gone = event.type == "DELETED"
        key = _key(event.object)
        before = self._there.pop(key, None)
        if not gone:
            self._there[key] = self._kept(event.object)
        if gone or not self._is_echo(before, key):
            self._tell(event.object, gone=gone)
        elif self._hear_status(self._kind, event.object):
            self._wake.set()

    def _compare(self, listing: Listing) -> None:
        self._version = listing.version
        # Objects that we created after this list was read are missing from it but do exist.
        for version in [each for each in self._own if each <= listing.version]:
            self._note_own(version)
        now_there = {_key(obj): self._kept(obj) for obj in listing.items}
        for key in sorted(set(self._there) - set(now_there)):
            self._tell(_decode(self._there[key]), gone=True)
        for obj in listing.items:
            self._tell(obj, gone=False)
            self._hear_status(self._kind, obj)
        self._there = now_there

    def _note_own(self, version: int) -> None:
        key, body = self._own.pop(version)
        self._there[key] = body

    def _kept(self, obj: Wire) -> bytes:
        return _encode(_without_status(obj) if self._kind in _OURS_IS_STATUS else obj)

    def _is_echo(self, before: bytes | None, key: str) -> bool:
        """Return whether an event changed nothing but the status, which must not cause a turn."""
        return self._kind in _OURS_IS_STATUS and before == self._there[key]

    def _tell(self, obj: Wire, *, gone: bool) -> None:
        self._inbox.append(News(kind=self._kind, gone=gone, obj=obj))
        self._wake.set()


async def hear_of_ours(
    store: Store, clock: Clock, kind: str, since: int, *, hear: Hear, wake: Signal
) -> None:
    """Watch a kind that only the control plane writes; never return. Wake the loop only if `hear`
    finds that another process wrote an object and that it must be corrected."""

    def changed(event: WatchEvent) -> None:
        if event.type != "DELETED" and hear(kind, event.object):
            wake.set()

    def listed(listing: Listing) -> None:
        for obj in listing.items:
            if hear(kind, obj):
                wake.set()

    await follow(store, clock, kind, since=since, listed=listed, changed=changed)


def _without_status(obj: Wire) -> Wire:
    metadata = obj["metadata"]
    assert isinstance(metadata, dict)
    kept = {key: value for key, value in metadata.items() if key not in _WRITTEN_BY_STORES}
    return {**obj, "metadata": kept, "status": None}


def _key(obj: Wire) -> str:
    metadata = obj["metadata"]
    assert isinstance(metadata, dict)
    return f"{metadata.get('namespace', '')}/{metadata['name']}"
