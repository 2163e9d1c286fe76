"""What a store of objects promises, and the closed set of errors it may raise.

Called by `shell` and implemented under `adapters`; `control` cannot see it. An object is a
Kubernetes-style mapping (`apiVersion`, `kind`, `metadata`, `spec`, `status`); cluster-scoped kinds
have the namespace "".

**Atomicity.** Every call reads or writes exactly one object, and that one wholly or not at all.
There is no transaction over several: whoever needs one commits through a single object (the
`LedgerHead`) and repeats the rest. Writes to one object are totally ordered by its version; a
version is never used twice in a store. A watch may lag, repeat and break; it never invents, and
the events of one object never go back.

    StoreError
      Conflict         the object is not the one you read      re-read and decide again
      NotFound         there is none of that name              (for a delete: it is done)
      AlreadyExists    the name is taken                       read it: it may be yours
      Invalid          the object breaks a rule, by path       never retry the same bytes
      Unavailable      nothing happened                        retry with back-off
      OutcomeUnknown   it may have happened                    re-read before anything else
      WatchExpired     the watch cannot go on from there       list again
      Forbidden        you may not                             never retry; tell somebody
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from leasehold.core.names import Wire

EventType = Literal["ADDED", "MODIFIED", "DELETED"]


class StoreError(Exception):
    """The outside world did not do as asked; the subclass says what is known about it.

    Their names are the closed set of the design, and say an outcome rather than "error".
    """

    def __init__(self, kind: str = "", namespace: str = "", name: str = "") -> None:
        super().__init__(kind, namespace, name)
        self.kind = kind
        self.namespace = namespace
        self.name = name

    def __str__(self) -> str:
        place = f"{self.namespace}/{self.name}" if self.namespace else self.name
        return f"{type(self).__name__}: {self.kind} {place}".rstrip()


class Conflict(StoreError):  # noqa: N818
    """Its version or uid is not the one the caller named; nothing happened."""


class NotFound(StoreError):  # noqa: N818
    """There is no such object; nothing happened."""


class AlreadyExists(StoreError):  # noqa: N818
    """An object of this name exists; nothing happened."""


class Invalid(StoreError):  # noqa: N818
    """The object breaks rules; `problems` has all of them, `path` and `why` are the first's."""

    def __init__(
        self,
        problems: Sequence[tuple[str, str]],
        kind: str = "",
        namespace: str = "",
        name: str = "",
    ) -> None:
        assert problems, "an object is invalid for a reason"
        super().__init__(kind, namespace, name)
        self.problems = tuple(problems)
        self.path, self.why = self.problems[0]

    def __str__(self) -> str:
        listed = "; ".join(f"{path}: {why}" if path else why for path, why in self.problems)
        return f"{super().__str__()}: {listed}"


class Unavailable(StoreError):  # noqa: N818
    """The store could not be reached, or refused for now; nothing happened."""


class OutcomeUnknown(StoreError):  # noqa: N818
    """No answer came: the write may or may not have happened. A time-out is not a no."""


class WatchExpired(StoreError):  # noqa: N818
    """The watch lost its place (or was closed); its caller lists again and starts a new one."""


class Forbidden(StoreError):  # noqa: N818
    """The store knows us and says no."""


@dataclass(frozen=True, slots=True)
class Listing:
    """All objects of a kind, by namespace and name, and the version to watch from."""

    items: list[Wire]
    version: int


class WatchEvent:
    """One change; a DELETED event carries the object's last state under the deletion's version.

    The object is read when it is asked for: whoever wrote it knows the version, and need not."""

    __slots__ = ("_object", "_read", "type", "version")

    def __init__(self, type: EventType, version: int, read: Callable[[], Wire]) -> None:  # noqa: A002
        self.type = type
        self.version = version
        self._read = read
        self._object: Wire | None = None

    @property
    def object(self) -> Wire:
        if self._object is None:
            self._object = self._read()
        return self._object


@dataclass(frozen=True, slots=True)
class Create:
    obj: Wire


@dataclass(frozen=True, slots=True)
class Update:
    obj: Wire


@dataclass(frozen=True, slots=True)
class PatchStatus:
    kind: str
    namespace: str
    name: str
    status: Wire
    version: int | None = None


@dataclass(frozen=True, slots=True)
class Delete:
    kind: str
    namespace: str
    name: str
    uid: str | None
    grace_ms: int | None = None
    version: int | None = None


@dataclass(frozen=True, slots=True)
class Bind:
    """A pod that has no node yet gets one."""

    namespace: str
    name: str
    node: str
    uid: str
    version: int | None = None


@dataclass(frozen=True, slots=True)
class SetFinalizers:
    """Whoever holds an object changes, from those that are `known` to hold it."""

    kind: str
    namespace: str
    name: str
    finalizers: tuple[str, ...]
    known: tuple[str, ...]
    uid: str | None = None


Write = Create | Update | PatchStatus | Bind | SetFinalizers | Delete
Answer = Wire | StoreError | None  # what the single call would have returned or raised
Answers = list[Answer]


def written_object(write: Write) -> tuple[str, str, str]:
    """Kind, namespace and name of what it writes: writes of the same are done in their order."""
    match write:
        case Create(obj) | Update(obj):
            metadata = obj["metadata"]
            assert isinstance(metadata, dict), "every object has metadata"
            return str(obj["kind"]), str(metadata.get("namespace", "")), str(metadata["name"])
        case Bind(namespace, name):
            return "Pod", namespace, name
        case PatchStatus(kind, namespace, name) | SetFinalizers(kind, namespace, name):
            return kind, namespace, name
        case Delete(kind, namespace, name):
            return kind, namespace, name


class Watch(Protocol):
    async def next(self) -> WatchEvent:
        """The next change; waits for one. Raises `WatchExpired` when the caller must list again."""
        ...

    def close(self) -> None:
        """Ends it. Closing twice is harmless."""
        ...


class Store(Protocol):
    """Reads and conditional writes of single objects; see the module for what is atomic."""

    async def get(self, kind: str, namespace: str, name: str) -> Wire:
        """As it is now: whoever has read the head here knows every write answered before."""
        ...

    async def list(self, kind: str) -> Listing:
        """A consistent snapshot of one kind, never from a cache."""
        ...

    async def scan(self, kind: str, see: Callable[[bytes], None]) -> int:
        """`list` without holding it all: shows `see` the JSON of each object and returns the
        version. After an error some may have been shown; the caller begins anew."""
        ...

    def watch(self, kind: str, version: int) -> Watch:
        """Every change after `version`, in order of version."""
        ...

    async def create(self, obj: Wire) -> Wire:
        """The object as stored: with uid, version and instant of creation."""
        ...

    async def update(self, obj: Wire) -> Wire:
        """Replaces all but the status, if `metadata.resourceVersion` is still the stored one."""
        ...

    async def patch_status(
        self, kind: str, namespace: str, name: str, status: Wire, *, version: int | None
    ) -> Wire:
        """Replaces the status and nothing else; with a version, only if it is still that one. A
        condition that has no `lastTransitionTime` is given one: as before if it has not changed,
        else now."""
        ...

    async def bind(
        self, namespace: str, name: str, node: str, *, uid: str, version: int | None = None
    ) -> None:
        """Gives a pod its node, once: `Conflict` if it has one, is being deleted, is another pod
        than `uid`, or with a version was written since."""
        ...

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
        """Replaces them without reading the object first, if they are still those `known`, in that
        order; else `Conflict`. What was to be deleted and is held no more is gone."""
        ...

    async def delete(
        self,
        kind: str,
        namespace: str,
        name: str,
        *,
        uid: str | None,
        grace_ms: int | None = None,
        version: int | None = None,
    ) -> None:
        """Asks that it go; with a uid, only if it is still that object, with a version, only if
        nobody has written it since. Finalizers, and the grace of a pod that runs on a node, delay
        it; `grace_ms=0` says that the pod is gone. A pod that has ended has no grace."""
        ...

    async def write_all(self, writes: Sequence[Write]) -> Answers:
        """Several writes for the price of one round, each by itself: those of one object in this
        order, and no order between objects, so that a store on a network sends many at once. What
        one of them raised is its answer and stops none of the others; answers are in the order of
        `writes`. What must be done after something else is sent when that was answered."""
        ...


async def perform(store: Store, write: Write) -> Wire | None:
    """One write by the call it stands for, which raises what that raises."""
    match write:
        case Create(obj):
            return await store.create(obj)
        case Update(obj):
            return await store.update(obj)
        case PatchStatus(kind, namespace, name, status, version):
            return await store.patch_status(kind, namespace, name, status, version=version)
        case Bind(namespace, name, node, uid, version):
            await store.bind(namespace, name, node, uid=uid, version=version)
        case SetFinalizers(kind, namespace, name, finalizers, known, uid):
            return await store.set_finalizers(
                kind, namespace, name, finalizers, known=known, uid=uid
            )
        case Delete(kind, namespace, name, uid, grace_ms, version):
            await store.delete(kind, namespace, name, uid=uid, grace_ms=grace_ms, version=version)
    return None
