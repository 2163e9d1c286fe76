"""Batches that lead from where somebody stands to where the head is.

Anybody may have offered a batch that was never committed, so several can bear one number; which of
them count, only the head says. Kept by a standby, who hears of batches and heads in any order.
"""

from leasehold.core.facts import Record
from leasehold.core.ledger.chain import GENESIS, Digest, next_digest


class Offer(Record):
    """A batch as it is stored: `encoded` is canonical, `digest` what it says of itself."""

    name: str
    seq: int
    digest: Digest
    encoded: bytes


class Links:
    def __init__(self, seq: int, digest: Digest) -> None:
        """From after this batch on."""
        assert seq > 0 or digest == GENESIS, (seq, digest)
        assert seq >= 0, seq
        self.seq = seq
        self.digest = digest
        self._offers: dict[int, dict[Digest, Offer]] = {}

    def offer(self, offer: Offer) -> None:
        """One that is behind us already says nothing new."""
        if offer.seq > self.seq:
            self._offers.setdefault(offer.seq, {})[offer.digest] = offer

    def withdraw(self, seq: int, digest: Digest) -> None:
        """Its object is gone."""
        self._offers.get(seq, {}).pop(digest, None)

    def go_to(self, seq: int, digest: Digest) -> list[Offer] | None:
        """The batches up to this one, in order, from whose last one on it goes next; None while one
        of them is missing."""
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
