"""A World whose closed leases have gone into an archive, and that archive."""

from collections.abc import Iterable

from tests.questions.played import Played

from leasehold.core.facts import Lease, ledger_order
from leasehold.core.objects.resolution import resolution_to_wire
from leasehold.core.resolutions import Resolution
from leasehold.core.units import Millis
from leasehold.core.world.world import World
from leasehold.shell.query import Questions


class Shelf:
    """An archive in memory."""

    def __init__(self, leases: Iterable[Lease], resolutions: Iterable[Resolution]) -> None:
        self._leases = list(leases)
        self._resolutions = list(resolutions)

    def resolutions(self, *, upto: int | None = None) -> Iterable[dict[str, object]]:
        return [
            resolution_to_wire(each)
            for each in self._resolutions
            if upto is None or each.batch <= upto
        ]

    def leases(self, *, since: int | None, until: int | None) -> Iterable[Lease]:
        for lease in self._leases:
            assert lease.end is not None
            if (since is None or lease.end > since) and (until is None or lease.start < until):
                yield lease


def compacted(played: Played, *, hide_tenants: bool = False) -> Questions:
    """The same ledger with every closed lease, Resolution and finished Run out of the World."""
    old = played.world
    new = World(old.policy)
    new.head = old.head
    for budget in old.budgets.values():
        new.put_budget(budget)
    for state in old.fleet.nodes.values():
        new.put_node(state.node)
    for uid, run in old.runs.items():
        if uid in old.open_by_run or uid in old.work.pending:
            new.put_run(run)
    leases = sorted(old.leases.values(), key=ledger_order)
    for lease in leases:
        if lease.is_open:
            new.fold_open(lease)
    new.bound = dict(old.bound)
    for pod in old.pods.values():
        new.put_pod(pod)
    closed = [lease for lease in leases if not lease.is_open]
    shelf = Shelf(closed, old.resolutions.values())

    async def at_rest(_: Millis) -> World | None:
        return new

    return Questions(at_rest, played.stage.user.clock, archive=shelf, hide_tenants=hide_tenants)
