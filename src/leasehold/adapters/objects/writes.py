"""What each write does to one object, as on a Kubernetes API server, over any `Storage`.

Called by `store.ObjectStore`. The rules are the server's: names, labels and sizes, versions,
finalizers, graceful deletion of pods, and the immutability that our resource definitions declare.
As on the server, `create` drops the status (a Node keeps it, a Pod becomes Pending), and an update
without changes makes no new version. No method suspends. The caller must ensure that nothing else
writes between a method's read and its write.
"""

from collections.abc import Callable, Mapping, Sequence

from leasehold.adapters.objects import rules
from leasehold.adapters.objects.storage import Change, Key, Storage, Stored, decode, encode
from leasehold.core.names import Wire
from leasehold.core.units import format_instant
from leasehold.ports.runtime import Clock
from leasehold.ports.store import AlreadyExists, Conflict, EventType, Invalid, NotFound

# (object before, object after, reader of other objects) -> problems as (path, why).
Admit = Callable[[Wire | None, Wire, Stored], list[tuple[str, str]]]

GRACE_MS = 30_000  # of a pod that specifies none
_SERVER_FIELDS = (
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "deletionGraceMs",
    "generation",
)


class ObjectWrites:
    """Performs writes on encoded objects.

    A rehearsal returns the same answer as the write, stores nothing and makes no version. `admit`
    must neither keep nor change the objects it gets. `finalizers`: by kind, the finalizer that a
    new object gets; for a server that contains the controllers that would otherwise add it."""

    def __init__(
        self,
        storage: Storage,
        clock: Clock,
        admit: Admit | None,
        *,
        prefix: str,
        finalizers: Mapping[str, str] | None = None,
    ) -> None:
        self._storage = storage
        self._clock = clock
        self._admit = admit
        self._prefix = prefix
        self._finalizers = finalizers or {}

    def create(self, given: bytes, *, rehearse: bool = False) -> Wire:
        obj = decode(given)
        key = rules.key_of(obj)
        self._check(key, rules.problems_of(obj), None, obj)
        if self._storage.read(key) is not None:
            raise AlreadyExists(*key)
        metadata = rules.part(obj, "metadata")
        for field in ("deletionTimestamp", "deletionGracePeriodSeconds", "deletionGraceMs"):
            metadata.pop(field, None)
        metadata["uid"] = f"{self._prefix}-{self._storage.created + 1:06d}"
        metadata["creationTimestamp"] = format_instant(self._clock.now())
        metadata["generation"] = 1
        if (finalizer := self._finalizers.get(key[0])) is not None:
            rules.add_finalizer(metadata, finalizer)
        rules.reset_status(obj)
        rules.fill_in(obj)
        if rehearse:
            metadata.pop("resourceVersion", None)
        return self._put("ADDED", key, obj, rehearse=rehearse)

    def update(self, given: bytes, *, rehearse: bool = False) -> Wire:
        obj = decode(given)
        key = rules.key_of(obj)
        metadata = rules.part(obj, "metadata")
        old = self.read(key)
        before = rules.part(old, "metadata")
        if "resourceVersion" not in metadata:
            raise Invalid([("metadata.resourceVersion", "is required to update")], *key)
        if metadata["resourceVersion"] != before["resourceVersion"]:
            raise Conflict(*key)
        if metadata.get("uid", before["uid"]) != before["uid"]:
            raise Conflict(*key)
        for field in _SERVER_FIELDS:
            metadata.pop(field, None)
            if field in before:
                metadata[field] = before[field]
        _set_or_drop(obj, "status", old.get("status"))
        if rules.content(obj) != rules.content(old):
            metadata["generation"] = rules.integer(before["generation"]) + 1
        problems = rules.problems_of(obj) + rules.problems_of_change(old, obj)
        self._check(key, problems, old, obj)
        if rules.is_gone(obj):
            return self._put("DELETED", key, obj, rehearse=rehearse)
        return old if obj == old else self._put("MODIFIED", key, obj, rehearse=rehearse)

    def patch_status(
        self,
        key: Key,
        given: bytes,
        *,
        version: int | None,
        stamp: bool = False,
        rehearse: bool = False,
    ) -> Wire:
        """Replace the status. If `stamp` is True, conditions without `lastTransitionTime` get
        one."""
        obj = self.read(key)
        if version is not None and rules.part(obj, "metadata")["resourceVersion"] != str(version):
            raise Conflict(*key)
        old = dict(obj)
        status = decode(given)
        if stamp:
            now = format_instant(self._clock.now())
            rules.stamp_conditions(rules.part(old, "status"), status, now)
        _set_or_drop(obj, "status", status)
        problems = rules.problems_of_status(old, obj)
        if problems:
            raise Invalid(problems, *key)
        return old if obj == old else self._put("MODIFIED", key, obj, rehearse=rehearse)

    def bind(self, key: Key, node: str, *, uid: str, version: int | None) -> None:
        obj = self.read(key)
        metadata, spec = rules.part(obj, "metadata"), rules.part(obj, "spec")
        if metadata["uid"] != uid or "deletionTimestamp" in metadata or spec.get("nodeName"):
            raise Conflict(*key)
        if version is not None and metadata["resourceVersion"] != str(version):
            raise Conflict(*key)
        obj["spec"] = {**spec, "nodeName": node}
        metadata["generation"] = rules.integer(metadata["generation"]) + 1
        self._put("MODIFIED", key, obj)

    def set_finalizers(
        self, key: Key, finalizers: Sequence[str], *, known: Sequence[str], uid: str | None
    ) -> Wire:
        obj = self.read(key)
        metadata = rules.part(obj, "metadata")
        if uid is not None and metadata["uid"] != uid:
            raise Conflict(*key)
        if metadata.get("finalizers", []) != list(known):
            raise Conflict(*key)
        old = {**obj, "metadata": dict(metadata)}
        metadata["finalizers"] = list(finalizers)
        problems = rules.problems_of_change(old, obj)
        if problems:
            raise Invalid(problems, *key)
        if rules.is_gone(obj):
            return self._put("DELETED", key, obj)
        return old if obj == old else self._put("MODIFIED", key, obj)

    def delete(
        self,
        key: Key,
        *,
        uid: str | None,
        grace_ms: int | None,
        version: int | None = None,
        rehearse: bool = False,
    ) -> None:
        obj = self.read(key)
        metadata = rules.part(obj, "metadata")
        if uid is not None and metadata["uid"] != uid:
            raise Conflict(*key)
        if version is not None and metadata["resourceVersion"] != str(version):
            raise Conflict(*key)
        if rehearse:
            return
        before = dict(metadata)
        grace = rules.grace_of(obj, grace_ms, default=GRACE_MS)
        if "deletionTimestamp" not in metadata or grace < rules.integer(
            metadata["deletionGraceMs"]
        ):
            metadata["deletionTimestamp"] = format_instant(self._clock.now() + grace)
            metadata["deletionGracePeriodSeconds"] = -(-grace // 1000)
            metadata["deletionGraceMs"] = grace
        if rules.is_gone(obj):
            self._put("DELETED", key, obj)
        elif metadata != before:
            self._put("MODIFIED", key, obj)

    def _stored(self, kind: str) -> Sequence[bytes]:
        return self._storage.read_all(kind)[0]

    def read(self, key: Key) -> Wire:
        stored = self._storage.read(key)
        if stored is None:
            raise NotFound(*key)
        return decode(stored)

    def _check(self, key: Key, problems: rules.Problems, old: Wire | None, new: Wire) -> None:
        """Raise `Invalid` if the object has `problems` or is not admitted. Admission is asked only
        if there are no `problems`, so that it gets only well-formed objects."""
        if not problems and self._admit is not None:
            problems = self._admit(old, new, self._stored)
        if problems:
            raise Invalid(problems, *key)

    def _put(self, event: EventType, key: Key, obj: Wire, *, rehearse: bool = False) -> Wire:
        version = self._storage.version + 1
        if not rehearse:
            rules.part(obj, "metadata")["resourceVersion"] = str(version)
        body = encode(obj)
        # An oversized object may still be deleted.
        if event != "DELETED" and len(body) > rules.OBJECT_BYTES_MAX:
            raise Invalid([("", f"{len(body)} bytes; at most {rules.OBJECT_BYTES_MAX}")], *key)
        if not rehearse:
            self._storage.put(Change(version, event, key, body))
        return obj


def _set_or_drop(obj: Wire, field: str, value: object) -> None:
    if value is None:
        obj.pop(field, None)
    else:
        obj[field] = value
