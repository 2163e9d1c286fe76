"""Reads the ledger from its objects: the batches since the last checkpoint, and all leases.

Called by a new leader (`recover`), unless its standby has a copy of the ledger; by a standby when
it starts its copy; and by simulations, to check the copy that a standby handed over. Nothing is
written.
"""

from leasehold.core.ledger.checkpoint import Carried
from leasehold.ports.runtime import Clock
from leasehold.ports.store import Store
from leasehold.shell.ledger.commit import HeadObject
from leasehold.shell.ledger.known_ledger import KnownBatch, KnownLedger
from leasehold.shell.ledger.read_chain import Lines, read_lines
from leasehold.shell.ledger.read_leases import stored_leases


async def read_ledger(
    store: Store, clock: Clock, head: HeadObject, carried: Carried
) -> tuple[KnownLedger, int]:
    """Read the ledger up to `head`. Return it with the store's version from which to watch for new
    batches.

    Batches whose Lease objects are already written are read without their leases. Other processes
    may write during the read, so leases may already show changes of batches after `head`.
    """
    lines = Lines(
        head.head,
        after=carried.seq,
        digest=carried.digest,
        # The head stores `materialised` with the next batch; an archived batch was materialised.
        whole_after=max(head.materialised, carried.seq),
    )
    version = await read_lines(store, clock, lines)
    chain = {
        link.batch.seq: KnownBatch(name=link.name, digest=link.digest, batch=link.batch)
        for link in lines.chain()
    }
    leases = await stored_leases(store, clock)
    known = KnownLedger(head, carried, chain, leases, lines.left_over())
    for offer in lines.ahead:
        known.offer(offer)
    return known, version
