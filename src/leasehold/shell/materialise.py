"""From a committed batch to Lease objects: create, mark, close. Repeatable at any point.

Names are unique for ever, so "already exists" and "already closed" are success. An object that the
store refuses for good never stops the chain: its lease is reported back to be closed.
"""

from msgspec.structs import replace

from leasehold.adapters.retry import FIRST_MS, MOST_MS
from leasehold.core.facts import Lease
from leasehold.core.ledger.batch import Batch
from leasehold.core.names import Wire
from leasehold.core.objects.lease import lease_status, lease_to_wire
from leasehold.core.world.world import World
from leasehold.ports.runtime import Clock
from leasehold.ports.store import (
    AlreadyExists,
    Answers,
    Create,
    OutcomeUnknown,
    PatchStatus,
    Store,
    StoreError,
    Unavailable,
    Write,
)


async def materialise(store: Store, clock: Clock, world: World, batch: Batch) -> list[str]:
    """Make the objects say what the batch says; returns leases whose objects were refused."""
    # The World's record knows the pod; a batch read back from the store does not.
    writes: list[tuple[str, Write]] = [
        (opened.name, Create(_as_opened(world.leases[opened.name]))) for opened in batch.opened
    ]
    changed = dict.fromkeys([name for name, _, _ in batch.ending] + [c.lease for c in batch.closed])
    writes += [
        (name, PatchStatus("Lease", "", name, lease_status(world.leases[name]))) for name in changed
    ]
    return await _write_all(store, clock, writes)


async def _write_all(store: Store, clock: Clock, writes: list[tuple[str, Write]]) -> list[str]:
    """Until every one has a definite answer; what is not answered yet is asked again, in order."""
    refused: dict[str, None] = {}
    pause = FIRST_MS
    while writes:
        try:
            answers: Answers = await store.write_all([write for _, write in writes])
        except (Unavailable, OutcomeUnknown) as error:
            answers = [error] * len(writes)
        waiting: list[tuple[str, Write]] = []
        for (name, write), answer in zip(writes, answers, strict=True):
            if isinstance(answer, Unavailable | OutcomeUnknown):
                waiting.append((name, write))
            elif isinstance(answer, StoreError) and not _is_there(write, answer):
                refused[name] = None
        if waiting:
            await clock.sleep(pause)
            pause = min(MOST_MS, pause * 2)
        writes = waiting
    return list(refused)


def _is_there(write: Write, answer: StoreError) -> bool:
    return isinstance(write, Create) and isinstance(answer, AlreadyExists)


def _as_opened(lease: Lease) -> Wire:
    """The object as it was when it was opened; what came later is written as its status."""
    return lease_to_wire(replace(lease, ending=None, closed=None))
