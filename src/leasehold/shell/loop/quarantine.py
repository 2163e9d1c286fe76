"""Objects that cannot be read: the reason is written to their status, and they can be deleted.

Kept by the loop. No decisions are taken about such an object until a user edits or deletes it. A
Run that is being deleted loses our finalizer once it has no open lease.
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
from leasehold.shell.ledger.commit import Ledger
from leasehold.shell.loop.stored import Unreadable, key_of

CONDITION = "Quarantined"
_TOLD = ("Run", "Budget")  # kinds whose status we write


@dataclass(slots=True)
class _Kept:
    kind: str
    obj: Wire
    why: str
    is_tried_again: bool
    is_told: bool = False
    version: int = 0  # of the object after our last status write
    heard: int = 0  # of the object after the last status write by anyone


class Quarantine:
    """Keeps the unreadable objects, by kind and key, and writes their statuses."""

    def __init__(self, store: Store, ledger: Ledger) -> None:
        self._store = store
        self._ledger = ledger
        self._kept: dict[tuple[str, str], _Kept] = {}

    def put(self, found: Unreadable) -> None:
        known = self._kept.get((found.kind, found.key))
        if known is not None and (known.obj, known.why) == (found.obj, found.why):
            return  # tried again, with the same result
        kept = _Kept(found.kind, found.obj, found.why, found.is_tried_again)
        self._kept[found.kind, found.key] = kept

    def release(self, kind: str, obj: Wire) -> None:
        """Remove an object from the quarantine, because it can be read now or no longer exists."""
        self._kept.pop((kind, key_of(obj)), None)

    def has(self, kind: str, obj: Wire) -> bool:
        return (kind, key_of(obj)) in self._kept

    def hear(self, kind: str, obj: Wire) -> bool:
        """Note that a quarantined object was written. Return whether this was after our last status
        write, so that our status may have been replaced and must be written again."""
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
        """Write the statuses that are still to be written, and remove finalizers. Return False if a
        write failed and must be tried again."""
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
                return True  # its leases are being closed; the next turn looks again
            held = tuple(str(each) for each in list_at(metadata, "finalizers"))
            if LEASES_CLOSED not in held:
                return True  # another finalizer holds it
            others = tuple(each for each in held if each != LEASES_CLOSED)
            await self._ledger.confirm()
            await self._write(SetFinalizers("Run", *place, others, held, uid))
        elif not kept.is_told and kept.kind in _TOLD:
            if kept.version:
                await self._ledger.confirm()  # the other writer may be the leader by now
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
    """Return the object's earlier status with the condition Quarantined added."""
    before = part(kept.obj, "status")
    others = [
        each
        for each in list_at(before, "conditions")
        if isinstance(each, dict) and each.get("type") != CONDITION
    ]
    remedy = "delete the Run and submit another" if kept.kind == "Run" else "edit or delete it"
    message = f"the object cannot be read and is skipped; {remedy}: {kept.why}"
    if kept.is_tried_again:
        message = (
            "the API server rejects its pods; leasehold tries again after a pause that grows "
            f"from a second to ten minutes: {kept.why}"
        )
    condition: Wire = {"type": CONDITION, "status": "True", "reason": CONDITION, "message": message}
    status: Wire = {**before, "conditions": [*others, condition]}
    if kept.kind == "Run":
        status |= {"phase": before.get("phase", "Pending"), "message": message}
    return status
