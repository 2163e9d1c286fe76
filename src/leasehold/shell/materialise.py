"""From a committed batch to Lease objects: create, mark, close. Repeatable at any point.

Names are unique for ever, so "already exists" and "already closed" are success. An object that the
store refuses for good never stops the chain: its lease is reported back to be closed.
"""

from msgspec.structs import replace

from leasehold.core.batch import Batch
from leasehold.core.facts import Lease
from leasehold.core.objects.lease import lease_status, lease_to_wire
from leasehold.core.world import World
from leasehold.ports.runtime import Clock
from leasehold.ports.store import AlreadyExists, Conflict, Forbidden, Invalid, NotFound, Store, Wire
from leasehold.shell.retry import until_answered


async def materialise(store: Store, clock: Clock, world: World, batch: Batch) -> list[str]:
    """Make the objects say what the batch says; returns leases whose objects were refused."""
    refused = []
    for opened in batch.opened:
        # The World's record knows the pod; a batch read back from the store does not.
        if not await _create(store, clock, world.leases[opened.name]):
            refused.append(opened.name)
    changed = dict.fromkeys([name for name, _, _ in batch.ending] + [c.lease for c in batch.closed])
    for name in changed:
        await _write_status(store, clock, world.leases[name], refused)
    return refused


async def _create(store: Store, clock: Clock, lease: Lease) -> bool:
    try:
        await until_answered(clock, lambda: store.create(_as_opened(lease)))
    except AlreadyExists:
        return True
    except (Invalid, Forbidden):
        return False
    return True


def _as_opened(lease: Lease) -> Wire:
    """The object as it was when it was opened; what came later is written as its status."""
    return lease_to_wire(replace(lease, ending=None, end=None, closure="", cause=None))


async def _write_status(store: Store, clock: Clock, lease: Lease, refused: list[str]) -> None:
    try:
        await until_answered(
            clock,
            lambda: store.patch_status("Lease", "", lease.name, lease_status(lease), version=None),
        )
    except (Invalid, Forbidden, NotFound, Conflict):
        refused.append(lease.name)
