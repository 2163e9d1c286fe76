"""A standby's knowledge of the ledger: its batches and all leases, followed by watch events.

It stands at one batch of the chain. Heads and batches may arrive in any order; it advances to a
head once it has every batch up to it. Nothing here reads the store: `standby` does.
"""

from msgspec.structs import replace

from leasehold.core.facts import Lease, Record
from leasehold.core.ledger.batch import Batch, batch_from_json
from leasehold.core.ledger.chain import Digest
from leasehold.core.ledger.checkpoint import Carried
from leasehold.core.ledger.head import Head
from leasehold.core.ledger.links import Links, StoredBatch
from leasehold.shell.ledger.commit import HeadObject
from leasehold.shell.ledger.read_leases import tell_leases


class ChainMismatch(Exception):  # noqa: N818 - named for the condition
    """The known ledger does not lead to the stored head."""


class KnownBatch(Record):
    """A committed batch. Its leases are dropped once the Lease objects have been written."""

    name: str
    digest: Digest
    batch: Batch


class KnownLedger:
    """The known chain and leases; after the hand-over to a new leader, they belong to that one."""

    def __init__(
        self,
        head: HeadObject,
        carried: Carried,
        chain: dict[int, KnownBatch],
        leases: dict[str, Lease],
        others: dict[tuple[int, Digest], str],
    ) -> None:
        """`chain`: from the checkpoint (`carried`) up to the head, in order. `leases`: at least the
        materialised ones. `others`: names of batches that exist but are not on the chain."""
        digest = chain[head.head.seq].digest if chain else carried.digest
        assert digest == head.head.digest, (digest, head.head)
        self._head = head
        self._links = Links(head.head.seq, digest)
        self._present = others | {(seq, each.digest): each.name for seq, each in chain.items()}
        self._archived = {place for place in others if place[0] <= carried.seq}
        self._skimmed = max(head.materialised, carried.seq)
        self.carried = carried
        self.chain = chain
        self.leases = leases
        # Leases that the last compaction dropped. Their objects may still exist, because batches
        # are removed after them.
        self.dropped: list[str] = []
        self.is_compacted = False  # another process has archived more than `carried` says
        for seq, each in chain.items():
            if seq > self._skimmed:
                self._tell(each.batch)

    def is_at(self, head: Head) -> bool:
        return (self._links.seq, self._links.digest) == (head.seq, head.digest)

    def leads_on_from(self, carried: Carried) -> bool:
        """Return whether the known chain covers everything after `carried`."""
        if carried.seq == self.carried.seq:
            return carried.digest == self.carried.digest
        return self._is_on_chain(carried.seq, carried.digest)

    @property
    def is_in_step(self) -> bool:
        """Whether the last reported head has been reached."""
        return self.is_at(self._head.head)

    @property
    def present(self) -> frozenset[tuple[int, Digest]]:
        return frozenset(self._present)

    def offer(self, offer: StoredBatch) -> None:
        self._present[offer.seq, offer.digest] = offer.name
        self._links.offer(offer)

    def withdraw(self, seq: int, digest: Digest) -> None:
        self._present.pop((seq, digest), None)
        self._links.withdraw(seq, digest)
        if self._is_on_chain(seq, digest):
            self.is_compacted = True
        self._archived.discard((seq, digest))
        if not self._archived:
            self.dropped = []

    def hear(self, head: HeadObject) -> None:
        """Note a new head. Raise `ChainMismatch` if a later version lies before the known batches:
        the store was restored."""
        if head.version <= self._head.version:
            return
        if head.head.seq < self._links.seq or head.materialised < self._head.materialised:
            raise ChainMismatch
        self._head = head

    def go_on(self) -> None:
        """Advance to the last head, if every batch up to it is known."""
        head = self._head.head
        if head.seq == self._links.seq and not self.is_in_step:
            raise ChainMismatch
        for offer in self._links.go_to(head.seq, head.digest) or ():
            batch = batch_from_json(offer.encoded)
            assert batch.seq == offer.seq, offer.name
            self.chain[batch.seq] = KnownBatch(name=offer.name, digest=offer.digest, batch=batch)
            self._tell(batch)
        self._skim()

    def let_go(self, carried: Carried) -> None:
        """Drop the batches and leases that the checkpoint `carried` covers."""
        assert self.carried.seq <= carried.seq, (self.carried.seq, carried.seq)
        if carried.seq > self._links.seq:
            return  # retry after those batches have arrived
        self.is_compacted = False
        if carried.seq == self.carried.seq:
            return
        self.carried = carried
        self._archived = {place for place in self._present if place[0] <= carried.seq}
        for seq in [each for each in self.chain if each <= carried.seq]:
            del self.chain[seq]
        dropped = [
            lease.name
            for lease in self.leases.values()
            if lease.closed is not None and carried.has_dropped(lease.closed.batch, lease.name)
        ]
        for name in dropped:
            del self.leases[name]
        self.dropped = dropped if self._archived else []

    def strays(self) -> list[str]:
        """Return names of batch objects up to the current one that are not on the chain."""
        return [
            name
            for (seq, digest), name in self._present.items()
            if seq <= self._links.seq and not self._is_on_chain(seq, digest)
        ]

    def _is_on_chain(self, seq: int, digest: Digest) -> bool:
        return seq in self.chain and self.chain[seq].digest == digest

    def _tell(self, batch: Batch) -> None:
        try:
            tell_leases(self.leases, batch)
        except KeyError:
            # Compacted and removed while it was being read
            raise ChainMismatch from None

    def _skim(self) -> None:
        """Drop leases from batches whose Lease objects have been written."""
        upto = min(self._head.materialised, self._links.seq)
        for seq in range(self._skimmed + 1, upto + 1):
            known = self.chain[seq]
            batch = replace(known.batch, opened=(), ending=(), closed=())
            self.chain[seq] = replace(known, batch=batch)
        self._skimmed = max(self._skimmed, upto)
