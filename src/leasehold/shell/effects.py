"""Everything that follows from a commit and is no part of it: pods, statuses, reservations.

Reconciled level-triggered: what could not be written now stays on the list and is written later;
nothing waits for it, and repeating it is harmless.
"""

from contextlib import suppress

import msgspec

from leasehold.control.pods import MakePod, RemovePod, pod_orders
from leasehold.control.statuses import budget_status, run_status
from leasehold.control.turn import Turn
from leasehold.core.facts import Confidence, Reservation, Run
from leasehold.core.objects.pod import pod_from_wire
from leasehold.core.objects.reservation import reservation_status, reservation_to_wire
from leasehold.core.objects.wire import LEASES_CLOSED
from leasehold.core.units import MINUTE
from leasehold.core.world import World
from leasehold.ports.runtime import Clock
from leasehold.ports.store import (
    AlreadyExists,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    Store,
    StoreError,
    Unavailable,
    Wire,
)

RETRY_MS = 1_000


def _is_news(old: Reservation | None, new: Reservation) -> bool:
    """A plan is written when it changes by more than a minute. Starts that only ever move earlier
    are read back after a restart, so they are written as they are."""
    if old is None or new.confidence not in (Confidence.EXACT, Confidence.WINDOW):
        return True
    if abs(new.starts - old.starts) > MINUTE:
        return True
    times = {"starts": 0, "releases": ()}
    return msgspec.structs.replace(old, **times) != msgspec.structs.replace(new, **times)


class Effects:
    """The writes that are owed, by what they are about."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._runs: dict[str, None] = {}
        self._reservations: dict[str, None] = {}
        self._budgets: dict[str, None] = {}
        self._written: dict[str, bytes] = {}
        self._created: dict[str, None] = {}  # reservations whose objects exist
        self._plans: dict[str, Reservation] = {}  # as they were written

    def owe_everything(self, world: World) -> None:
        """After recovery nothing is known to be written."""
        self._runs.update(dict.fromkeys(world.runs))
        self._runs.update(dict.fromkeys(world.pods_by_run))
        self._reservations.update(dict.fromkeys(world.reservations))
        self._budgets.update(dict.fromkeys(world.budgets))

    def owe(self, turn: Turn) -> None:
        self._runs.update(turn.touched)
        self._runs.update(turn.world.dirty)
        self._reservations.update(dict.fromkeys(turn.reservations))
        self._budgets.update(turn.world.dirty_budgets)
        turn.world.dirty_budgets.clear()

    @property
    def are_owed(self) -> bool:
        return bool(self._runs or self._reservations or self._budgets)

    async def perform(self, turn: Turn) -> bool:
        """Write what is owed; False if something is left for later."""
        complete = True
        for subject in list(self._reservations):
            complete &= await self._settled(
                self._reservations, subject, self._write_reservation(turn.world, subject)
            )
        for uid in list(self._runs):
            complete &= await self._settled(self._runs, uid, self._write_run(turn, uid))
        for key in list(self._budgets):
            complete &= await self._settled(self._budgets, key, self._write_budget(turn, key))
        return complete

    async def _settled(self, owed: dict[str, None], key: str, work: object) -> bool:
        owed.pop(key, None)
        try:
            await work  # type: ignore[misc]
        except StoreError:
            owed[key] = None
            return False
        return True

    async def _write_run(self, turn: Turn, uid: str) -> None:
        world = turn.world
        run = world.runs.get(uid)
        if run is not None and not run.finalized and not run.deleting:
            await self._finalize(run)
        makes, removes = pod_orders(turn, uid)
        for order in removes:
            await self._remove_pod(world, order)
        for make in makes:
            await self._make_pod(world, make)
        if run is None:
            return
        if run.deleting and not world.open_by_run.get(uid):
            await self._let_go(run)  # from now on its name may be another Run's
        else:
            await self._write_status("Run", run.namespace, run.name, run.uid,
                                     run_status(world, run, turn.now))  # fmt: skip

    async def _make_pod(self, world: World, order: MakePod) -> None:
        # Remembered before it is asked for: until the outcome is known it may exist, and the
        # GPUs under it are not free.
        world.put_pod(order.pod)
        try:
            made = await self._store.create(order.wire)
        except AlreadyExists:
            made = await self._store.get("Pod", order.pod.namespace, order.pod.name)
        except (Unavailable, Invalid, Forbidden):
            world.drop_pod(order.pod.key)
            raise
        world.put_pod(pod_from_wire(made, gpu_resource=world.policy.gpu_resource))

    async def _remove_pod(self, world: World, order: RemovePod) -> None:
        try:
            await self._store.delete(
                "Pod", order.namespace, order.name, uid=order.uid, grace_ms=order.grace
            )
        except NotFound:
            world.drop_pod(f"{order.namespace}/{order.name}")

    async def _write_reservation(self, world: World, subject: str) -> None:
        reservation = world.reservations[subject]
        if not _is_news(self._plans.get(subject), reservation):
            return
        if subject not in self._created:
            with suppress(AlreadyExists):
                await self._store.create(reservation_to_wire(reservation))
            self._created[subject] = None
        await self._write_status(
            "Reservation",
            reservation.namespace,
            reservation.name,
            "",
            reservation_status(reservation),
        )
        self._plans[subject] = reservation

    async def _write_budget(self, turn: Turn, key: str) -> None:
        budget = turn.world.budgets.get(key)
        if budget is not None:
            await self._write_status("Budget", budget.namespace, budget.name, budget.uid,
                                     budget_status(turn.world, budget, turn.now))  # fmt: skip

    async def _write_status(
        self, kind: str, namespace: str, name: str, uid: str, status: Wire
    ) -> None:
        """`uid` tells an object from an earlier one of its name, whose status may have been the
        same; names of reservations are never used again."""
        key = f"{kind} {namespace}/{name} {uid}"
        encoded = msgspec.json.encode(status, order="sorted")
        if self._written.get(key) == encoded:
            return
        try:
            await self._store.patch_status(kind, namespace, name, status, version=None)
        except NotFound:
            return  # it is gone; so is whoever wanted to know
        self._written[key] = encoded

    async def _finalize(self, run: Run) -> None:
        await self._edit_finalizers(run, add=True)

    async def _let_go(self, run: Run) -> None:
        await self._edit_finalizers(run, add=False)

    async def _edit_finalizers(self, run: Run, *, add: bool) -> None:
        try:
            obj = await self._store.get("Run", run.namespace, run.name)
            metadata = obj["metadata"]
            assert isinstance(metadata, dict)
            if metadata.get("uid") != run.uid:
                return
            others = [each for each in metadata.get("finalizers", []) if each != LEASES_CLOSED]
            metadata["finalizers"] = [*others, LEASES_CLOSED] if add else others
            await self._store.update(obj)
        except NotFound:
            return
        except Conflict:
            raise Unavailable("Run", run.namespace, run.name) from None
