"""Checks that the stored statuses are true when everything is at rest.

A status is written after the commit and is not part of it. A new leader writes all statuses again,
and corrects those that a deposed leader writes later. Here the stored statuses are compared with
those that the World gives. Amounts that grow with time, and messages, are not compared.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from random import Random

from leasehold.control.views.statuses import budget_status, run_status
from leasehold.core.names import Wire
from leasehold.core.objects.reservation import reservation_status
from leasehold.core.objects.wire import list_at, part
from leasehold.core.units import MINUTE, SECOND, Instant, Millis
from leasehold.core.world.world import World
from leasehold.ports.store import Invalid, NotFound, PatchStatus, Store, perform
from leasehold.sim.kernel import Process
from leasehold.sim.scenario.ledger import key_of, objects_of
from leasehold.sim.store_wrapper import StoreAround

LATE = "late-status"
LATE_MIN, LATE_MAX = SECOND, 5 * MINUTE
KINDS = ("Run", "Reservation", "Budget")
OF_RUNS = ("phase", "attempt", "width", "leases")
OF_RESERVATIONS = ("state", "commitment", "payingEnvelopes", "held")
OF_ENVELOPES = ("name", "used", "spare", "lent", "headroom")


class LateStatuses:
    """Delivers some status writes a second time, much later. By then their sender may be deposed,
    or may have written another status."""

    def __init__(self, seed: int, rate: float, store: Store, wire: Process) -> None:
        self._random = Random(f"{seed}/{LATE}")
        self._rate = rate
        self._store = store
        self._wire = wire
        self.effects: Counter[str] = Counter()

    def stop(self) -> None:
        """Send no further writes a second time. Copies that are on their way still arrive."""
        self._rate = 0.0

    def maybe_again(self, write: PatchStatus) -> None:
        if self._rate and self._random.random() < self._rate:
            after = self._random.randrange(LATE_MIN, LATE_MAX)
            self._wire.tasks.spawn("late status", self._arrive(write, after))

    async def _arrive(self, write: PatchStatus, after: Millis) -> None:
        await self._wire.clock.sleep(after)
        with suppress(NotFound, Invalid):
            before = await self._store.get(write.kind, write.namespace, write.name)
            now = await perform(self._store, write)
            self.effects[LATE] += before != now


class SignedStore(StoreAround):
    """A store that calls `signed` with each status written through it, and with the resulting
    object."""

    def __init__(self, store: Store, signed: Callable[[PatchStatus, Wire], None]) -> None:
        super().__init__(store)
        self._signed = signed

    async def patch_status(
        self, kind: str, namespace: str, name: str, status: Wire, *, version: int | None
    ) -> Wire:
        answer = await self._store.patch_status(kind, namespace, name, status, version=version)
        self._signed(PatchStatus(kind, namespace, name, status), answer)
        return answer


def untrue_statuses(world: World, store: Store, now: Instant) -> Iterator[str]:
    stored = {kind: _by_name(store, kind) for kind in KINDS}
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
) -> Iterator[str]:
    for name in names:
        tells, is_so = (said or {}).get(name), (wanted or {}).get(name)
        if tells != is_so:
            yield f"StatusesAreTrue: {what} tells {name} {tells}, and it is {is_so}"


def _rows(status: Wire | None) -> Wire:
    """Return the part of a Budget's status whose numbers do not grow with time."""
    rows = list_at(status or {}, "envelopes")
    return {
        "rows": [
            {name: row.get(name) for name in OF_ENVELOPES} for row in rows if isinstance(row, dict)
        ]
    }


def _by_name(store: Store, kind: str) -> dict[str, Wire]:
    return {key_of(wire): part(wire, "status") for wire in objects_of(store, kind)}
