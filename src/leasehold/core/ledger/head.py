"""Where the ledger stands: the one object whose compare-and-swap is the commit."""

from leasehold.core.facts import Record
from leasehold.core.ledger.chain import GENESIS, Digest
from leasehold.core.units import Instant


class Head(Record):
    seq: int = 0
    digest: Digest = GENESIS
    epoch: int = 1
    instant: Instant = 0
