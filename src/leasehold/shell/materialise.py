"""From a committed batch to Lease objects: create, mark, close. Repeatable at any point.

Names are unique for ever, so "already exists" and "already closed" are success. An object that the
store refuses for good never stops the chain: its lease is reported back to be closed.
"""

from leasehold.core.batch import Batch
from leasehold.core.facts import Lease
from leasehold.core.objects.lease import lease_status, lease_to_wire
from leasehold.core.world import World
from leasehold.ports.runtime import Clock
from leasehold.ports.store import AlreadyExists, Conflict, Forbidden, Invalid, NotFound, Store
from leasehold.shell.retry import until_answered


async def materialise(store: Store, clock: Clock, world: World, batch: Batch) -> list[str]:
    """Make the objects say what the batch says; returns leases whose objects were refused."""
    refused = []
    for lease in batch.opened:
        try:
            await until_answered(clock, lambda lease=lease: _create(store, lease))  # type: ignore[misc]
        except (Invalid, Forbidden):
            refused.append(lease.name)
    changed = dict.fromkeys([name for name, _, _ in batch.ending] + [c.lease for c in batch.closed])
    for name in changed:
        await _write_status(store, clock, world.leases[name], refused)
    return refused


async def _create(store: Store, lease: Lease) -> None:
    try:
        await store.create(lease_to_wire(lease))
    except AlreadyExists:
        return


async def _write_status(store: Store, clock: Clock, lease: Lease, refused: list[str]) -> None:
    try:
        await until_answered(
            clock,
            lambda: store.patch_status("Lease", "", lease.name, lease_status(lease), version=None),
        )
    except (Invalid, Forbidden, NotFound, Conflict):
        refused.append(lease.name)
