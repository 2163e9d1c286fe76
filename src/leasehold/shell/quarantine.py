"""Runs and Budgets that cannot be read: the reason is written on them, and they can still go.

Kept by the loop. Nothing is decided about such an object; its owner edits or deletes it. Of a Run
that is being deleted, the finalizer is taken off once it has no lease open.
"""

from dataclasses import dataclass

from leasehold.core.names import LEASES_CLOSED, Wire
from leasehold.core.objects.wire import list_at, part, text_at
from leasehold.core.world.world import World
from leasehold.ports.store import NotFound, PatchStatus, SetFinalizers, Store, StoreError, Write
from leasehold.shell.ledger import Ledger
from leasehold.shell.stored import Unreadable, key_of

CONDITION = "Quarantined"
_TOLD = ("Run", "Budget")  # whose status is ours to write


@dataclass(slots=True)
class _Kept:
    kind: str
    obj: Wire
    why: str
    is_told: bool = False


class Quarantine:
    """By kind and key."""

    def __init__(self, store: Store, ledger: Ledger) -> None:
        self._store = store
        self._ledger = ledger
        self._kept: dict[tuple[str, str], _Kept] = {}

    def put(self, found: Unreadable) -> None:
        self._kept[found.kind, found.key] = _Kept(found.kind, found.obj, found.why)

    def release(self, kind: str, obj: Wire) -> None:
        """It can be read now, or is gone."""
        self._kept.pop((kind, key_of(obj)), None)

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
            return await self._wrote(SetFinalizers("Run", *place, others, held, uid))
        if not kept.is_told and kept.kind in _TOLD:
            kept.is_told = await self._wrote(PatchStatus(kept.kind, *place, _status(kept)))
            return kept.is_told
        return True

    async def _wrote(self, write: Write) -> bool:
        [answer] = await self._store.write_all([write])
        if isinstance(answer, NotFound):
            raise answer
        return not isinstance(answer, StoreError)


def _status(kept: _Kept) -> Wire:
    """What was said before, and this."""
    before = part(kept.obj, "status")
    others = [
        each
        for each in list_at(before, "conditions")
        if isinstance(each, dict) and each.get("type") != CONDITION
    ]
    message = f"it cannot be read, and is left alone until it is edited: {kept.why}"
    condition: Wire = {"type": CONDITION, "status": "True", "reason": CONDITION, "message": message}
    status: Wire = {**before, "conditions": [*others, condition]}
    if kept.kind == "Run":
        status |= {"phase": before.get("phase", "Pending"), "message": message}
    return status
