"""The ledger from its objects: the committed batches since the archive, and all leases.

Read so by an owner that begins (`recover`), unless it stood by and knows; by whoever stands by, at
first (`standby`); and by simulations, to compare with what was handed over. It writes nothing.
"""

from leasehold.core.ledger.checkpoint import Carried
from leasehold.ports.runtime import Clock
from leasehold.ports.store import Store
from leasehold.shell.known_ledger import KnownBatch, KnownLedger
from leasehold.shell.ledger import HeadObject
from leasehold.shell.read_chain import Lines, read_lines
from leasehold.shell.read_leases import stored_leases


async def read_ledger(
    store: Store, clock: Clock, head: HeadObject, carried: Carried
) -> tuple[KnownLedger, int]:
    """Up to this head, and from which version to follow batches. Of those whose leases are objects
    already the rest is read. Others may go on writing meanwhile: what is read later may say more
    than the head did, and never less."""
    lines = Lines(
        head.head,
        after=carried.seq,
        digest=carried.digest,
        # The head is written with the next batch; that a batch was archived says it was done.
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
