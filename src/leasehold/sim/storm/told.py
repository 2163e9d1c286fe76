"""Whether what objects tell people is so, when everything has come to rest.

Statuses follow from commits and are no part of them: whoever takes over owes all of them again. The
simulator compares here what is stored with what the World would say now; amounts that grow by
themselves and the words of messages are left out. What somebody deposed wrote after the new owner
had is not the new owner's doing: it stays until something happens to that object, and is counted.
"""

from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

from leasehold.control.views.statuses import budget_status, run_status
from leasehold.core.names import Wire
from leasehold.core.objects.reservation import reservation_status
from leasehold.core.objects.wire import list_at, part
from leasehold.core.units import Instant
from leasehold.core.world.world import World
from leasehold.ports.store import Store
from leasehold.sim.around import StoreAround
from leasehold.sim.scenario.ledger import key_of, objects_of

T = TypeVar("T")

OF_RUNS = ("phase", "attempt", "width", "leases")
OF_RESERVATIONS = ("state", "commitment", "payingEnvelopes", "held")
OF_ENVELOPES = ("name", "used", "spare", "lent", "headroom")


class StatusWriters:
    """Who wrote the status of each object last, and when."""

    def __init__(self, now: Callable[[], Instant]) -> None:
        self._now = now
        self._last: dict[str, tuple[str, Instant]] = {}  # by kind and namespace/name

    def around(self, store: Store, process: str) -> Store:
        def sign(what: str) -> None:
            self._last[what] = (process, self._now())

        return _SignedStore(store, sign)

    def are_late(self, what: str, leader: str, since: Instant) -> bool:
        """Whether it was somebody else, when this one led already."""
        process, at = self._last.get(what, (leader, since))
        return process != leader and at >= since


class _SignedStore(StoreAround):
    def __init__(self, store: Store, sign: Callable[[str], None]) -> None:
        super().__init__(store)
        self._sign = sign

    async def _call(self, verb: str, kind: str, call: Callable[[], Awaitable[T]]) -> T:  # noqa: ARG002
        return await call()

    async def patch_status(
        self, kind: str, namespace: str, name: str, status: Wire, *, version: int | None
    ) -> Wire:
        answer = await self._store.patch_status(kind, namespace, name, status, version=version)
        self._sign(f"{kind} {namespace}/{name}")
        return answer


def untrue_statuses(world: World, store: Store, now: Instant) -> Iterator[tuple[str, str]]:
    """Each with the object that tells it."""
    stored = {kind: _by_name(store, kind) for kind in ("Run", "Reservation", "Budget")}
    for run in world.runs.values():
        if not run.deleting:
            wanted = run_status(world, run, now)
            yield from _compared(f"Run {run.key}", stored["Run"].get(run.key), wanted, OF_RUNS)
    for reservation in world.reservations.values():
        name = f"{reservation.namespace}/{reservation.name}"
        wanted = reservation_status(reservation)
        said = stored["Reservation"].get(name)
        yield from _compared(f"Reservation {name}", said, wanted, OF_RESERVATIONS)
    for key, budget in world.budgets.items():
        said, wanted = stored["Budget"].get(key), budget_status(world, budget, now)
        yield from _compared(f"Budget {key}", _rows(said), _rows(wanted), ("rows",))


def _compared(
    what: str, said: Wire | None, wanted: Wire | None, names: tuple[str, ...]
) -> Iterator[tuple[str, str]]:
    for name in names:
        tells, is_so = (said or {}).get(name), (wanted or {}).get(name)
        if tells != is_so:
            yield what, f"StatusesAreTrue: {what} tells {name} {tells}, and it is {is_so}"


def _rows(status: Wire | None) -> Wire:
    """Of a Budget's status, what does not grow by itself."""
    rows = list_at(status or {}, "envelopes")
    return {
        "rows": [
            {name: row.get(name) for name in OF_ENVELOPES} for row in rows if isinstance(row, dict)
        ]
    }


def _by_name(store: Store, kind: str) -> dict[str, Wire]:
    return {key_of(wire): part(wire, "status") for wire in objects_of(store, kind)}
