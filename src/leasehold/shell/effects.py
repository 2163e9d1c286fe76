"""Everything that follows from a commit and is no part of it: pods, statuses, reservations.

Reconciled level-triggered: what could not be written now stays on the list and is written later;
nothing waits for it, and repeating it is harmless.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import msgspec
from msgspec.structs import replace

from leasehold.adapters.containment import About
from leasehold.control.pods import MakePod, RemovePod, pod_orders
from leasehold.control.statuses import budget_status, run_status
from leasehold.control.turn import Turn
from leasehold.core.facts import Confidence, PodPhase, Reservation, Run
from leasehold.core.objects.pod import pod_from_wire
from leasehold.core.objects.reservation import reservation_status, reservation_to_wire
from leasehold.core.objects.wire import LEASES_CLOSED
from leasehold.core.units import MINUTE
from leasehold.core.world.world import World
from leasehold.ports.runtime import Clock
from leasehold.ports.store import (
    AlreadyExists,
    Answer,
    Create,
    Delete,
    Forbidden,
    Invalid,
    NotFound,
    PatchStatus,
    Store,
    StoreError,
    Unavailable,
    Update,
    Wire,
    Write,
)

RETRY_MS = 1_000
WORDS_MAX = 300  # of a refusal
ROUND_MAX = 64  # writes that are sent together, or a few more

Settle = Callable[[Answer], bool]
Contain = Callable[[About, Exception], object]


@dataclass(frozen=True, slots=True)
class Order:
    """One write that is owed for `key`; `settle` says whether its answer is good enough. Without a
    write, something could not even be read."""

    owed: dict[str, None]
    key: str
    write: Write | None
    settle: Settle


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

    def __init__(
        self,
        store: Store,
        clock: Clock,
        on_made: Callable[[Wire], None] = lambda _: None,
        *,
        contain: Contain | None = None,
    ) -> None:
        """`on_made`: a pod as we made it, whose event will be no news. `contain`: who hears of an
        object for which nothing can be written; without it that is raised."""
        self._store = store
        self._clock = clock
        self._on_made = on_made
        self._contain = contain
        self._runs: dict[str, None] = {}
        self._untold: dict[str, None] = {}  # runs whose pods were made, and whose status waits
        self._has_refused = False  # a pod
        self._reservations: dict[str, None] = {}
        self._budgets: dict[str, None] = {}
        self._written: dict[tuple[str, str, str, str], bytes] = {}
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
        """Write what is owed, in rounds: the first pods start while the last are being made. False
        if something is left for later."""
        reservations, runs, budgets = [*self._reservations], [*self._runs], [*self._budgets]
        self._reservations.clear()
        self._runs.clear()
        self._budgets.clear()
        complete = True
        orders: list[Order] = []
        for subject in reservations:
            with self._apart("Reservation", subject):
                orders += self._reservation_orders(turn.world, subject)
        for uid in runs:
            with self._apart("Run", uid, turn.world.runs.get(uid)):
                orders += await self._run_orders(turn, uid)
            if len(orders) >= ROUND_MAX:
                complete &= await self._place(orders)
                orders = []
        for key in budgets:
            with self._apart("Budget", key):
                orders += self._budget_orders(turn, key)
        for first in range(0, len(orders), ROUND_MAX):
            complete &= await self._place(orders[first : first + ROUND_MAX])
        # Pods that were made, or refused for good, are news of their runs.
        turn.again = turn.again or bool(self._untold) or self._has_refused
        self._has_refused = False
        return complete

    @contextmanager
    def _apart(self, kind: str, key: str, run: Run | None = None) -> Iterator[None]:
        """What cannot be said of one object is owed no more until something happens to it, and
        keeps nothing from being written of the others."""
        try:
            yield
        except Exception as error:
            if self._contain is None:
                raise
            namespace, _, name = (run.key if run is not None else key).rpartition("/")
            uid = "" if run is None else run.uid
            self._contain(About(kind, name, namespace, uid), error)

    async def _place(self, orders: list[Order]) -> bool:
        """One round of writes; whatever could not be done is owed again."""
        writes = [order.write for order in orders if order.write is not None]
        answers: Sequence[Answer]
        try:
            answers = await self._store.write_all(writes)
        except StoreError as error:
            answers = [error] * len(writes)
        given = iter(answers)
        complete = True
        for order in orders:
            answer = Unavailable() if order.write is None else next(given)
            if not order.settle(answer):
                order.owed[order.key] = None
                complete = False
        return complete

    async def _run_orders(self, turn: Turn, uid: str) -> list[Order]:
        world = turn.world
        run = world.runs.get(uid)
        was_untold = uid in self._untold
        self._untold.pop(uid, None)
        orders: list[Order] = []
        if run is not None and not run.finalized and not run.deleting:
            orders += await self._finalizer_orders(run, add=True)
        makes, removes = pod_orders(turn, uid)
        orders += [self._removal(world, order, uid) for order in removes]
        orders += [self._making(world, order, uid) for order in makes]
        if run is None:
            return orders
        if run.deleting and not world.open_by_run.get(uid):
            # From now on its name may be another Run's.
            return orders + await self._finalizer_orders(run, add=False)
        if makes and not was_untold:
            # They will be bound in a moment: what is to be said then is said once.
            self._untold[uid] = None
            return orders
        place = ("Run", run.namespace, run.name, run.uid)
        status = run_status(world, run, turn.now)
        return orders + self._status_orders(self._runs, uid, place, status)

    def _making(self, world: World, order: MakePod, uid: str) -> Order:
        # Remembered before it is asked for: until the outcome is known it may exist, and the
        # GPUs under it are not free.
        world.put_pod(order.pod)

        def settle(answer: Answer) -> bool:
            if isinstance(answer, Unavailable):
                world.drop_pod(order.pod.key)
            elif isinstance(answer, Invalid | Forbidden):
                # Nor will it ever take it: as if its node had rejected it, at once and in words.
                why = f"the server refuses it: {answer}"
                world.put_pod(replace(order.pod, phase=PodPhase.FAILED, reason=why[:WORDS_MAX]))
                self._has_refused = True
                return True
            elif isinstance(answer, dict):
                world.put_pod(pod_from_wire(answer, gpu_resource=world.policy.gpu_resource))
                self._on_made(answer)
            # One of that name exists: it is the one that was ordered, and will be seen.
            return isinstance(answer, dict | AlreadyExists)

        return Order(self._runs, uid, Create(order.wire), settle)

    def _removal(self, world: World, order: RemovePod, uid: str) -> Order:
        def settle(answer: Answer) -> bool:
            if isinstance(answer, NotFound):
                world.drop_pod(f"{order.namespace}/{order.name}")
            return answer is None or isinstance(answer, NotFound)

        write = Delete("Pod", order.namespace, order.name, order.uid, order.grace, order.version)
        return Order(self._runs, uid, write, settle)

    def _reservation_orders(self, world: World, subject: str) -> list[Order]:
        reservation = world.reservations.get(subject)
        if reservation is None:
            return []  # it was over, and left with its run
        if not _is_news(self._plans.get(subject), reservation):
            return []
        orders = []
        if subject not in self._created:

            def created(answer: Answer) -> bool:
                is_there = isinstance(answer, dict | AlreadyExists)
                if is_there:
                    self._created[subject] = None
                return is_there

            write = Create(reservation_to_wire(reservation))
            orders.append(Order(self._reservations, subject, write, created))

        def planned(_: Answer) -> bool:
            if subject not in self._created:
                return False  # its object could not be made yet
            self._plans[subject] = reservation
            return True

        place = ("Reservation", reservation.namespace, reservation.name, "")
        status = reservation_status(reservation)
        return orders + self._status_orders(
            self._reservations, subject, place, status, written=planned
        )

    def _budget_orders(self, turn: Turn, key: str) -> list[Order]:
        budget = turn.world.budgets.get(key)
        if budget is None:
            return []
        place = ("Budget", budget.namespace, budget.name, budget.uid)
        status = budget_status(turn.world, budget, turn.now)
        return self._status_orders(self._budgets, key, place, status)

    def _status_orders(
        self,
        owed: dict[str, None],
        key: str,
        place: tuple[str, str, str, str],
        status: Wire,
        *,
        written: Settle = lambda _: True,
    ) -> list[Order]:
        """The uid in `place` tells an object from an earlier one of its name, whose status may
        have been the same; names of reservations are never used again."""
        encoded = msgspec.json.encode(status, order="sorted")
        if self._written.get(place) == encoded:
            return []

        def settle(answer: Answer) -> bool:
            if isinstance(answer, NotFound):
                return written(answer)  # it is gone; so is whoever wanted to know
            if isinstance(answer, StoreError):
                return False
            self._written[place] = encoded
            return written(answer)

        return [Order(owed, key, PatchStatus(*place[:3], status), settle)]

    async def _finalizer_orders(self, run: Run, *, add: bool) -> list[Order]:
        def settle(answer: Answer) -> bool:
            return isinstance(answer, dict | NotFound)  # a conflict: look again later

        try:
            obj = await self._store.get("Run", run.namespace, run.name)
        except NotFound:
            return []
        except StoreError:
            return [Order(self._runs, run.uid, None, settle)]
        metadata = obj["metadata"]
        assert isinstance(metadata, dict)
        if metadata.get("uid") != run.uid:
            return []
        others = [each for each in metadata.get("finalizers", []) if each != LEASES_CLOSED]
        metadata["finalizers"] = [*others, LEASES_CLOSED] if add else others
        return [Order(self._runs, run.uid, Update(obj), settle)]
