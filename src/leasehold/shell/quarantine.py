"""Runs and Budgets that cannot be read: the reason is written on them, and they can still go.

Kept by the loop. Nothing is decided about such an object; its owner edits or deletes it. Of a Run
that is being deleted, the finalizer is taken off once it has no lease open.
"""

from dataclasses import dataclass

from leasehold.core.names import LEASES_CLOSED, Wire
from leasehold.core.objects.wire import list_at, part, text_at, version_at
from leasehold.core.world.world import World
from leasehold.ports.store import (
    Answer,
    NotFound,
    PatchStatus,
    SetFinalizers,
    Store,
    StoreError,
    Write,
)
from leasehold.shell.ledger import Ledger
from leasehold.shell.stored import Unreadable, key_of

CONDITION = "Quarantined"
_TOLD = ("Run", "Budget")  # whose status is ours to write


@dataclass(slots=True)
class _Kept:
    kind: str
    obj: Wire
    why: str
    is_tried_again: bool
    is_told: bool = False
    version: int = 0  # that the object had when it was told last
    heard: int = 0  # that somebody's status had, ours or not


class Quarantine:
    """By kind and key."""

    def __init__(self, store: Store, ledger: Ledger) -> None:
        self._store = store
        self._ledger = ledger
        self._kept: dict[tuple[str, str], _Kept] = {}

    def put(self, found: Unreadable) -> None:
        known = self._kept.get((found.kind, found.key))
        if known is not None and (known.obj, known.why) == (found.obj, found.why):
            return  # it was tried once more, and the answer is the same
        kept = _Kept(found.kind, found.obj, found.why, found.is_tried_again)
        self._kept[found.kind, found.key] = kept

    def release(self, kind: str, obj: Wire) -> None:
        """It can be read now, or is gone."""
        self._kept.pop((kind, key_of(obj)), None)

    def has(self, kind: str, obj: Wire) -> bool:
        return (kind, key_of(obj)) in self._kept

    def hear(self, kind: str, obj: Wire) -> bool:
        """Somebody has written its status; whether that was later than we did, and hides it."""
        kept = self._kept[kind, key_of(obj)]
        kept.heard = version_at(part(obj, "metadata"))
        if not kept.is_told or kept.heard <= kept.version:
            return False
        kept.is_told = False
        return True

    @property
    def is_empty(self) -> bool:
        return not self._kept

    async def perform(self, world: World) -> bool:
        """Writes what is owed; false if something is left for later."""
        complete = True
        for kept in list(self._kept.values()):
            try:
                complete &= await self._perform(kept, world)
            except NotFound:
                self.release(kept.kind, kept.obj)
            except StoreError:
                complete = False
        return complete

    async def _perform(self, kept: _Kept, world: World) -> bool:
        metadata = part(kept.obj, "metadata")
        place = text_at(metadata, "namespace"), text_at(metadata, "name")
        uid = text_at(metadata, "uid")
        if kept.kind == "Run" and "deletionTimestamp" in metadata:
            if world.open_by_run.get(uid):
                return True  # its leases are being closed, and the next turn looks again
            held = tuple(str(each) for each in list_at(metadata, "finalizers"))
            if LEASES_CLOSED not in held:
                return True  # somebody else holds it
            others = tuple(each for each in held if each != LEASES_CLOSED)
            await self._ledger.confirm()
            await self._write(SetFinalizers("Run", *place, others, held, uid))
        elif not kept.is_told and kept.kind in _TOLD:
            if kept.version:
                await self._ledger.confirm()  # whoever wrote over it may decide here by now
            answer = await self._write(PatchStatus(kept.kind, *place, _status(kept)))
            kept.version = version_at(part(answer, "metadata"))
            kept.is_told = kept.heard <= kept.version
            return kept.is_told
        return True

    async def _write(self, write: Write) -> Answer:
        [answer] = await self._store.write_all([write])
        if isinstance(answer, StoreError):
            raise answer
        return answer


def _status(kept: _Kept) -> Wire:
    """What was said before, and this."""
    before = part(kept.obj, "status")
    others = [
        each
        for each in list_at(before, "conditions")
        if isinstance(each, dict) and each.get("type") != CONDITION
    ]
    remedy = "delete it and submit another" if kept.kind == "Run" else "edit or delete it"
    message = f"it cannot be read and is left alone; {remedy}: {kept.why}"
    if kept.is_tried_again:
        message = (
            "the API server refuses its pods, and is asked again after a pause that grows from a "
            f"second to ten minutes: {kept.why}"
        )
    condition: Wire = {"type": CONDITION, "status": "True", "reason": CONDITION, "message": message}
    status: Wire = {**before, "conditions": [*others, condition]}
    if kept.kind == "Run":
        status |= {"phase": before.get("phase", "Pending"), "message": message}
    return status
