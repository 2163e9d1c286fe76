"""Writes the Lease objects of a committed batch: creates them, marks them as ending, closes them.

The writes can be repeated at any point. Lease names are never reused, so "already exists" and
"already closed" are success. If the store refuses an object for good, the others are still written,
and its lease is returned, so that it can be closed.
"""

from collections.abc import Sequence
from typing import NamedTuple

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


class Materialised(NamedTuple):
    """The leases whose objects the store refused, and the answers to the other writes (`along`)."""

    refused: list[str]
    answers: Answers


async def materialise(
    store: Store, clock: Clock, world: World, batch: Batch, *, along: Sequence[Write] = ()
) -> Materialised:
    """Write the Lease objects of a batch until all of them match the batch. `along`: writes of
    other objects, which are sent once, with the first round."""
    # Take leases from the World, which knows their pods; a batch read back from the store does not.
    writes: list[tuple[str, Write]] = [
        (opened.name, Create(_as_opened(world.leases[opened.name]))) for opened in batch.opened
    ]
    changed = dict.fromkeys([name for name, _, _ in batch.ending] + [c.lease for c in batch.closed])
    writes += [
        (name, PatchStatus("Lease", "", name, lease_status(world.leases[name]))) for name in changed
    ]
    return await _write_all(store, clock, writes, along)


async def _write_all(
    store: Store, clock: Clock, writes: list[tuple[str, Write]], along: Sequence[Write]
) -> Materialised:
    """Write until the store has accepted or refused each Lease object. Writes without an answer are
    repeated in order; those in `along` are sent once."""
    refused: dict[str, None] = {}
    found: Answers = []
    pause = FIRST_MS
    while writes or along:
        wanted = [*(write for _, write in writes), *along]
        try:
            answers: Answers = await store.write_all(wanted)
        except (Unavailable, OutcomeUnknown) as error:
            answers = [error] * len(wanted)
        if along:
            answers, found, along = answers[: len(writes)], answers[len(writes) :], ()
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
    return Materialised(refused=list(refused), answers=found)


def _is_there(write: Write, answer: StoreError) -> bool:
    return isinstance(write, Create) and isinstance(answer, AlreadyExists)


def _as_opened(lease: Lease) -> Wire:
    """Return the Lease object as it was when the lease was opened. Its ending and closure are
    written later, as its status."""
    return lease_to_wire(replace(lease, ending=None, closed=None))
