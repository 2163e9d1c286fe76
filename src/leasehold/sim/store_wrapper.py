"""A wrapper around a store: every call goes through its method `_call`.

Subclasses override `_call` to do something before or after every call. They override a single
method if it needs special treatment.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from leasehold.core.names import Wire
from leasehold.ports.store import Answers, Listing, Store, Watch, Write, written_object

T = TypeVar("T")
READS = ("get", "list", "scan")


class StoreAround:
    """Passes every call to the inner store through `_call`, which gets the method's name and the
    kind of object."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def _call(self, verb: str, kind: str, call: Callable[[], Awaitable[T]]) -> T:  # noqa: ARG002
        return await call()

    async def get(self, kind: str, namespace: str, name: str) -> Wire:
        return await self._call("get", kind, lambda: self._store.get(kind, namespace, name))

    async def list(self, kind: str) -> Listing:
        return await self._call("list", kind, lambda: self._store.list(kind))

    async def scan(self, kind: str, see: Callable[[bytes], None]) -> int:
        return await self._call("scan", kind, lambda: self._store.scan(kind, see))

    def watch(self, kind: str, version: int) -> Watch:
        return self._store.watch(kind, version)

    async def create(self, obj: Wire) -> Wire:
        return await self._call("create", str(obj["kind"]), lambda: self._store.create(obj))

    async def update(self, obj: Wire) -> Wire:
        return await self._call("update", str(obj["kind"]), lambda: self._store.update(obj))

    async def patch_status(
        self, kind: str, namespace: str, name: str, status: Wire, *, version: int | None
    ) -> Wire:
        return await self._call(
            "patch_status",
            kind,
            lambda: self._store.patch_status(kind, namespace, name, status, version=version),
        )

    async def bind(
        self, namespace: str, name: str, node: str, *, uid: str, version: int | None = None
    ) -> None:
        await self._call(
            "bind", "Pod", lambda: self._store.bind(namespace, name, node, uid=uid, version=version)
        )

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
        return await self._call(
            "set_finalizers",
            kind,
            lambda: self._store.set_finalizers(
                kind, namespace, name, finalizers, known=known, uid=uid
            ),
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
    ) -> None:
        await self._call(
            "delete",
            kind,
            lambda: self._store.delete(
                kind, namespace, name, uid=uid, grace_ms=grace_ms, version=version
            ),
        )

    async def write_all(self, writes: Sequence[Write]) -> Answers:
        kind = written_object(writes[0])[0] if writes else ""
        return await self._call("write_all", kind, lambda: self._store.write_all(writes))
