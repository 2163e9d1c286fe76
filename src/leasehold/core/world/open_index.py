"""Which leases are open, by run, node, payer and pod, and which nodes have spares or elastic runs.

One of the World's indices: each open lease is added once and removed once.
"""

from leasehold.core.facts import EnvelopeKey, Lease, Role, Uid

Names = dict[str, None]  # in insertion order


class OpenIndex:
    """The names of open leases by run, node, payer and pod."""

    def __init__(self) -> None:
        self.by_run: dict[Uid, Names] = {}
        self.by_node: dict[str, Names] = {}
        self.by_payer: dict[EnvelopeKey, Names] = {}
        self.by_pod: dict[str, Names] = {}  # by namespace/pod
        # node -> number of spares and of leases of elastic runs. On other nodes a preemption can
        # only free GPUs by lottery.
        self.yielding: dict[str, int] = {}

    def add(self, lease: Lease, *, is_elastic: bool) -> None:
        for index, key in self._keys(lease):
            assert lease.name not in index.get(key, ()), lease.name
            index.setdefault(key, {})[lease.name] = None
        self._count(lease, is_elastic, 1)

    def remove(self, lease: Lease, *, is_elastic: bool) -> None:
        for index, key in self._keys(lease):
            discard(index, key, lease.name)
        self._count(lease, is_elastic, -1)

    def _keys(self, lease: Lease) -> list[tuple[dict[str, Names], str]]:
        keys = [
            (self.by_run, lease.uid),
            (self.by_node, lease.node),
            (self.by_payer, lease.payer),
        ]
        return [*keys, (self.by_pod, lease.pod_key)] if lease.pod else keys

    def _count(self, lease: Lease, is_elastic: bool, sign: int) -> None:
        if lease.role is not Role.SPARE and not is_elastic:
            return
        count = self.yielding.get(lease.node, 0) + sign
        if count:
            self.yielding[lease.node] = count
        else:
            self.yielding.pop(lease.node, None)


def discard(index: dict[str, Names], key: str, name: str) -> None:
    """Remove a name from the index, and its key if nothing is left under it."""
    names = index[key]
    names.pop(name, None)
    if not names:
        del index[key]
