"""A World whose closed leases have been moved to an archive, and that archive."""

from collections.abc import Iterable

from tests.questions.played import Played

from leasehold.core.facts import EnvelopeKey, Lease, Relation, Uid, ledger_order
from leasehold.core.ledger.checkpoint import Carried, CarriedBook
from leasehold.core.objects.resolution import resolution_to_wire
from leasehold.core.resolutions import Resolution
from leasehold.core.units import GpuMs, Millis
from leasehold.core.world.world import World
from leasehold.shell.queries.query import Questions


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


def _books(world: World, closed: Iterable[Lease]) -> dict[Uid, CarriedBook]:
    """Return the books of the remaining runs: what their closed leases cost."""
    sums: dict[Uid, dict[tuple[EnvelopeKey, Relation], GpuMs]] = {}
    for lease in closed:
        if _stays(world, lease.uid):
            assert lease.end is not None
            mine, key = sums.setdefault(lease.uid, {}), (lease.payer, lease.relation)
            mine[key] = mine.get(key, 0) + lease.gpu_ms(lease.end)
    return {
        uid: CarriedBook(settled=tuple((*key, amount) for key, amount in mine.items()))
        for uid, mine in sums.items()
    }


def _stays(world: World, uid: Uid) -> bool:
    return uid in world.open_by_run or uid in world.work.pending


def compacted(played: Played, *, hide_tenants: bool = False) -> Questions:
    """Return questions on the same ledger, with all closed leases and Resolutions archived."""
    old = played.world
    new = World(old.policy)
    new.head = old.head
    closed = sorted((each for each in old.leases.values() if not each.is_open), key=ledger_order)
    new.carry(Carried(books=_books(old, closed)))
    for budget in old.budgets.values():
        new.put_budget(budget)
    for state in old.fleet.nodes.values():
        new.put_node(state.node)
    for uid, run in old.runs.items():
        if _stays(old, uid):
            new.put_run(run)
    for lease in sorted(old.leases.values(), key=ledger_order):
        if lease.is_open:
            new.fold_open(lease)
    new.bound = dict(old.bound)
    for pod in old.pods.values():
        new.put_pod(pod)
    shelf = Shelf(closed, old.resolutions.values())

    async def at_rest(_: Millis) -> World | None:
        return new

    return Questions(at_rest, played.stage.user.clock, archive=shelf, hide_tenants=hide_tenants)
