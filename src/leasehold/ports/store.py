"""The object store port: its guarantees and the closed set of errors that it may raise.

Called by `shell`, implemented under `adapters`, invisible to `control`. An object is a
Kubernetes-style mapping (`apiVersion`, `kind`, `metadata`, `spec`, `status`); cluster-scoped kinds
have the namespace "".

**Atomicity.** Every call reads or writes exactly one object, completely or not at all. There are no
transactions over several objects: code that needs one commits through a single object (the
`LedgerHead`) and repeats the other writes until they succeed. Writes to one object are totally
ordered by its version; a store never uses a version twice. A watch may lag, repeat events and
break, but it never invents events, and the events of one object never go back in version.

    StoreError
      Conflict         the object is not the one you read      re-read and decide again
      NotFound         no object has this name                 (for a delete: done)
      AlreadyExists    the name is taken                       read it: it may be yours
      Invalid          the object breaks a rule, by path       never retry the same bytes
      Unavailable      nothing happened                        retry with back-off
      OutcomeUnknown   the write may have happened             re-read before anything else
      WatchExpired     the watch cannot continue               list again
      Forbidden        permission denied                       never retry; report it
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from leasehold.core.names import Wire

EventType = Literal["ADDED", "MODIFIED", "DELETED"]


class StoreError(Exception):
    """Base class of the store's errors; the subclass says what is known about the outcome.

    The subclasses are a closed set, and their names are outcomes instead of ending in "Error".
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
    """The object's version or uid differs from the one the caller named; nothing happened."""


class NotFound(StoreError):  # noqa: N818
    """There is no such object; nothing happened."""


class AlreadyExists(StoreError):  # noqa: N818
    """An object of this name exists; nothing happened."""


class Invalid(StoreError):  # noqa: N818
    """The object breaks rules: `problems` has all, `path` and `why` are those of the first."""

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
    """The store could not be reached, or it refused the request for now; nothing happened."""


class OutcomeUnknown(StoreError):  # noqa: N818
    """No answer came: the write may or may not have happened. A timeout does not mean failure."""


class WatchExpired(StoreError):  # noqa: N818
    """The watch was closed or cannot continue; the caller must list again and start a new watch."""


class Forbidden(StoreError):  # noqa: N818
    """The store authenticated this process and refused the request."""


@dataclass(frozen=True, slots=True)
class Listing:
    """All objects of a kind, sorted by namespace and name, and the version from which to watch."""

    items: list[Wire]
    version: int


class WatchEvent:
    """One change of an object.

    A DELETED event carries the object's last state and the version of the deletion. The object is
    read lazily: a process that made the write itself needs only the version.
    """

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
    """Assign a node to a pod that has none."""

    namespace: str
    name: str
    node: str
    uid: str
    version: int | None = None


@dataclass(frozen=True, slots=True)
class SetFinalizers:
    """Replace the finalizers of an object if they are still `known`."""

    kind: str
    namespace: str
    name: str
    finalizers: tuple[str, ...]
    known: tuple[str, ...]
    uid: str | None = None


Write = Create | Update | PatchStatus | Bind | SetFinalizers | Delete
# The result of a single write, or the error that it would have raised
Answer = Wire | StoreError | None
Answers = list[Answer]


def written_object(write: Write) -> tuple[str, str, str]:
    """Return kind, namespace and name. Writes to one object keep their order."""
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
        """Wait for the next change; raise `WatchExpired` if the caller must list again."""
        ...

    def close(self) -> None:
        """Close the watch. Closing twice is harmless."""
        ...


class Store(Protocol):
    """Reads and conditional writes of single objects; the module docstring says what is atomic."""

    async def get(self, kind: str, namespace: str, name: str) -> Wire:
        """Return the current object.

        A read of the head sees all writes that were answered before the read.
        """
        ...

    async def list(self, kind: str) -> Listing:
        """Return a consistent snapshot of one kind, never from a cache."""
        ...

    async def scan(self, kind: str, see: Callable[[bytes], None]) -> int:
        """Pass the JSON of each object of a kind to `see`, without holding all of them in memory.

        Returns the version of the listing. After an error `see` may have been called for some
        objects; the caller starts again.
        """
        ...

    def watch(self, kind: str, version: int) -> Watch:
        """Return a watch of every change after `version`, in order of version."""
        ...

    async def create(self, obj: Wire) -> Wire:
        """Create an object and return it as stored, with uid, version and creation time."""
        ...

    async def update(self, obj: Wire) -> Wire:
        """Replace everything but the status, if `metadata.resourceVersion` is still the stored
        one."""
        ...

    async def patch_status(
        self, kind: str, namespace: str, name: str, status: Wire, *, version: int | None
    ) -> Wire:
        """Replace only the status. If `version` is given, it must still be the stored one.

        A condition without `lastTransitionTime` gets one: the stored time if the condition is
        unchanged, otherwise now.
        """
        ...

    async def bind(
        self, namespace: str, name: str, node: str, *, uid: str, version: int | None = None
    ) -> None:
        """Assign a node to a pod, once.

        Raises `Conflict` if the pod has a node, is being deleted, has another uid than `uid`, or
        was written after `version`.
        """
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
        """Replace the finalizers without reading the object first.

        Raises `Conflict` unless the stored finalizers are `known`, in that order. An object being
        deleted is removed when its last finalizer goes.
        """
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
        """Request deletion of an object. If given, `uid` and `version` must still be the stored
        ones.

        Finalizers delay the removal, and so does the grace period of a pod that runs on a node.
        `grace_ms=0` states that the pod is already gone. A pod that has ended has no grace period.
        """
        ...

    async def write_all(self, writes: Sequence[Write]) -> Answers:
        """Do several independent writes in one round, and return the answers in the order of
        `writes`.

        Writes to one object keep their order; others may run in parallel. If a write fails, its
        answer is the error, and the other writes go on. A write that must follow another belongs in
        a later round.
        """
        ...


async def perform(store: Store, write: Write) -> Wire | None:
    """Call the store method that this write stands for; raise whatever the method raises."""
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
