"""Finds the batches that lead from the last known batch to a head.

A replica may store a batch that is never committed, so several batches can have the same number;
only the head's digest tells which ones count. Used by a standby, which sees batches and heads in
any order.
"""

from leasehold.core.facts import Record
from leasehold.core.ledger.chain import GENESIS, Digest, next_digest


class StoredBatch(Record):
    """A stored batch: `encoded` is its canonical form, `digest` the digest that it claims."""

    name: str
    seq: int
    digest: Digest
    encoded: bytes


class Links:
    """The stored batches after the last known one, by number and digest."""

    def __init__(self, seq: int, digest: Digest) -> None:
        """Continue after batch `seq`, whose digest is `digest`."""
        assert seq > 0 or digest == GENESIS, (seq, digest)
        assert seq >= 0, seq
        self.seq = seq
        self.digest = digest
        self._offers: dict[int, dict[Digest, StoredBatch]] = {}

    def offer(self, offer: StoredBatch) -> None:
        """Note a stored batch; ignored if it is not after the last known one."""
        if offer.seq > self.seq:
            self._offers.setdefault(offer.seq, {})[offer.digest] = offer

    def withdraw(self, seq: int, digest: Digest) -> None:
        """Forget a batch whose object is gone."""
        self._offers.get(seq, {}).pop(digest, None)

    def go_to(self, seq: int, digest: Digest) -> list[StoredBatch] | None:
        """Return the batches up to this head in order, and make the head the last known batch.

        Returns None, and changes nothing, while a batch is missing.
        """
        before: dict[tuple[int, Digest], Digest] = {}
        reached = {self.digest}
        for number in range(self.seq + 1, seq + 1):
            offers = self._offers.get(number, {}).values()
            steps = {
                offer.digest: each
                for offer in offers
                for each in reached
                if next_digest(each, offer.encoded) == offer.digest
            }
            before.update(((number, after), each) for after, each in steps.items())
            reached = set(steps)
        if digest not in reached:
            return None
        way = []
        wanted = digest
        for number in range(seq, self.seq, -1):
            way.append(self._offers.pop(number)[wanted])
            wanted = before[number, wanted]
        assert wanted == self.digest, (wanted, self.digest)
        self.seq, self.digest = seq, digest
        return way[::-1]
