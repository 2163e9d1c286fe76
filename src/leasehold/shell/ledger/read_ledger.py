"""Reads the ledger from its objects: batches since the last checkpoint, and all leases.

Called by a new leader (`recover`) unless its standby knows the ledger already, by a standby at
first (`standby`), and by simulations to check what a standby handed over. It writes nothing.
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
    """Read the ledger up to this head; also return the version to watch batches from. Batches whose
    leases are objects already are read without leases. Others may write meanwhile: later reads may
    show more than the head did, never less."""
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
