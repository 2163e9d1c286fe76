"""Checks that what a standby hands over equals what the store contains at that moment."""

from collections.abc import Callable

from leasehold.core.facts import Lease
from leasehold.core.ledger.head import Head
from leasehold.ports.runtime import Clock
from leasehold.ports.store import Store
from leasehold.shell.archive.checkpoints import read_checkpoint
from leasehold.shell.leadership.standby import Standby
from leasehold.shell.ledger.commit import Ledger
from leasehold.shell.ledger.known_ledger import KnownLedger
from leasehold.shell.ledger.read_ledger import read_ledger
from leasehold.sim.scenario.ledger import at_once

INVARIANT = "StandbyKnows"


class WatchedStandby(Standby):
    """The shipped standby, which also passes each hand-over to `seen`."""

    seen: Callable[[Head, KnownLedger | None], None] = staticmethod(lambda _head, _known: None)

    async def hand_over(self, head: Head) -> KnownLedger | None:
        known = await super().hand_over(head)
        self.seen(head, known)
        return known


def disagreement(store: Store, clock: Clock, known: KnownLedger) -> str:
    """Return the first difference between a standby's copy of the ledger and the store, read
    without faults; "" if there is none."""
    there = at_once(Ledger(store, clock).look())
    if not known.is_at(there.head):
        return ""  # another process has continued, and the new leader is about to notice
    carried, _ = at_once(read_checkpoint(store, clock))
    if not known.leads_on_from(carried):
        return ""
    read, _ = at_once(read_ledger(store, clock, there, carried))
    said = {name: lease for name, lease in known.leases.items() if not _is_gone(lease, known)}
    wanted = {name: lease for name, lease in read.leases.items() if not _is_gone(lease, known)}
    for name in sorted(said.keys() | wanted.keys()):
        if said.get(name) != wanted.get(name):
            return f"{INVARIANT}: {name} is {wanted.get(name)}, and it says {said.get(name)}"
    chain = {seq: each for seq, each in known.chain.items() if seq > carried.seq}
    names, wanted_names = (
        [each.name for each in batches.values()] for batches in (chain, read.chain)
    )
    if names != wanted_names:
        return f"{INVARIANT}: the chain is {wanted_names}, and it says {names}"
    for seq, each in read.chain.items():
        if seq > there.materialised and chain[seq].batch != each.batch:
            return f"{INVARIANT}: batch {seq} is not what it says"
    return ""


def _is_gone(lease: Lease, known: KnownLedger) -> bool:
    closed = lease.closed
    return closed is not None and known.carried.has_dropped(closed.batch, lease.name)
