"""The head of the ledger: the one object whose compare-and-swap commits a batch."""

from leasehold.core.facts import Record
from leasehold.core.ledger.chain import GENESIS, Digest
from leasehold.core.units import Instant

FORMAT = 2  # written by this version; 2 added `began` to closures
_KNOWN = (None, 1, FORMAT)  # the first versions wrote no format


class UnknownFormat(Exception):  # noqa: N818 - named for what it states
    """The ledger was written by a later version of leasehold. It must not be folded or
    continued."""

    def __init__(self, found: object) -> None:
        super().__init__(
            f"the ledger has format {found}, and this version of leasehold supports only "
            f"{FORMAT}; use the version that wrote the ledger, or a later one"
        )


def check_format(found: object) -> None:
    """Raise `UnknownFormat` unless this version can read the format in a head's spec."""
    if found not in _KNOWN or isinstance(found, bool):
        raise UnknownFormat(found)


class Head(Record):
    """The last committed batch: number, digest, epoch and instant."""

    seq: int = 0
    digest: Digest = GENESIS
    epoch: int = 1
    instant: Instant = 0
