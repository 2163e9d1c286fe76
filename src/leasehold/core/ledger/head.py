"""Where the ledger stands: the one object whose compare-and-swap is the commit."""

from leasehold.core.facts import Record
from leasehold.core.ledger.chain import GENESIS, Digest
from leasehold.core.units import Instant

FORMAT = 2  # of batches and leases as this version writes them: closures say when a pod began
_KNOWN = (None, 1, FORMAT)  # the first versions named none


class UnknownFormat(Exception):  # noqa: N818 - it says what is so
    """A later version of leasehold has written this ledger: whoever does not know what it says must
    not fold it, and must not go on from there."""

    def __init__(self, found: object) -> None:
        super().__init__(
            f"the ledger is of format {found}, and this version of leasehold knows {FORMAT}: "
            "use the version that wrote it, or a later one"
        )


def check_format(found: object) -> None:
    """Of a head's spec."""
    if found not in _KNOWN or isinstance(found, bool):
        raise UnknownFormat(found)


class Head(Record):
    seq: int = 0
    digest: Digest = GENESIS
    epoch: int = 1
    instant: Instant = 0
