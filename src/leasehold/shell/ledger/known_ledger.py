"""A standby's copy of the ledger: its batches and all leases, kept up to date by watch events.

The copy reflects the ledger up to one batch of the chain. Heads and batches may arrive in any
order. Once every batch up to a reported head has arrived, the copy advances to that head. Nothing
here reads the store: `standby` does.
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
    """The copy of the ledger cannot lead to the stored head; the ledger must be read again."""


class KnownBatch(Record):
    """A committed batch. The leases in `batch` are dropped once their Lease objects are written."""

    name: str
    digest: Digest
    batch: Batch


class KnownLedger:
    """The batches since the checkpoint and all leases. A standby updates them until it hands them
    over; from then on only the new leader uses them."""

    def __init__(
        self,
        head: HeadObject,
        carried: Carried,
        chain: dict[int, KnownBatch],
        leases: dict[str, Lease],
        others: dict[tuple[int, Digest], str],
    ) -> None:
        """`chain`: the committed batches after the checkpoint `carried`, up to the head, in order.
        `leases`: all leases that have objects; those of newer batches are added here. `others`:
        names of stored batch objects that are not on the chain."""
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
        """Return whether the checkpoint `carried` is on the known chain, so that every batch after
        it is known."""
        if carried.seq == self.carried.seq:
            return carried.digest == self.carried.digest
        return self._is_on_chain(carried.seq, carried.digest)

    @property
    def is_in_step(self) -> bool:
        """Whether this copy of the ledger has reached the last reported head."""
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
        """Note a reported head, unless it is older than the last one. Raise `ChainMismatch` if it
        names an earlier batch than the known ones: the store was then restored from a backup."""
        if head.version <= self._head.version:
            return
        if head.head.seq < self._links.seq or head.materialised < self._head.materialised:
            raise ChainMismatch
        self._head = head

    def go_on(self) -> None:
        """Apply the batches up to the last reported head; do nothing until all of them have
        arrived."""
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
        """Drop the batches and leases that the checkpoint `carried` summarises. Do nothing if the
        checkpoint is ahead of the known batches."""
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
        """Return the names of batch objects that can be deleted: they are not newer than the last
        known batch and not on the chain. They were never committed, or are compacted already."""
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
        """Remove the leases from known batches whose Lease objects are written."""
        upto = min(self._head.materialised, self._links.seq)
        for seq in range(self._skimmed + 1, upto + 1):
            known = self.chain[seq]
            batch = replace(known.batch, opened=(), ending=(), closed=())
            self.chain[seq] = replace(known, batch=batch)
        self._skimmed = max(self._skimmed, upto)
