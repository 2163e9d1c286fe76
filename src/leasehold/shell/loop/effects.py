"""All writes that follow from a commit but are not part of it: pods, statuses, reservations.

Level-triggered: a write that fails stays on the list and is tried again. Nothing waits for these
writes, and repeating them is harmless. On a store where other processes may lead, their order is:

    with the leases    create the first pods, without a node: an unbound pod uses no GPU
    then, per round    create the other pods and the Reservations; add finalizers to Runs
                       confirm leadership: read the head after all that the next writes rely on
                       bind and delete pods, remove finalizers: a deposed leader must do none of it
    after all rounds   write the statuses, which then report the pods as bound
    in the next turn   write the statuses of runs whose pods were created in this turn

Without other leaders nothing is confirmed, and a pod is created with its node, after its lease.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import msgspec
from msgspec.structs import replace

from leasehold.adapters.containment import About
from leasehold.control.running.pods import BindPod, MakePod, RemovePod, pod_orders
from leasehold.control.turn import Turn
from leasehold.control.views.statuses import budget_status, run_status
from leasehold.core.facts import Pod, PodPhase, Run
from leasehold.core.names import LEASE_CLOSED, LEASES_CLOSED, Wire
from leasehold.core.objects.pod import pod_from_wire, without_node
from leasehold.core.objects.reservation import reservation_status, reservation_to_wire
from leasehold.core.objects.wire import stamps
from leasehold.core.reservations import Confidence, Reservation
from leasehold.core.units import MINUTE
from leasehold.core.world.world import World
from leasehold.ports.store import (
    AlreadyExists,
    Answer,
    Bind,
    Conflict,
    Create,
    Delete,
    Forbidden,
    Invalid,
    NotFound,
    PatchStatus,
    SetFinalizers,
    Store,
    StoreError,
    Unavailable,
    Write,
)
from leasehold.shell.ledger.commit import Ledger
from leasehold.shell.loop.status_cache import Place, StatusCache

RETRY_MS = 1_000
WORDS_MAX = 300  # maximum length of a refusal's text
ROUND_MAX = 64  # writes per round, approximately

Settle = Callable[[Answer], bool]
Contain = Callable[[About, Exception], object]


@dataclass(frozen=True, slots=True)
class Order:
    """One write that is still to be done for the object `key`; `owed` is the list it returns to if
    it fails. `settle` returns whether the store's answer is good enough.
    `needs_confirmation`: the write repeats no committed fact, so leadership is confirmed first."""

    owed: dict[str, None]
    key: str
    write: Write
    settle: Settle
    needs_confirmation: bool = False
    is_status: bool = False  # written after pods, unless it needs confirmation


def _is_news(old: Reservation | None, new: Reservation) -> bool:
    """Return whether a reservation must be written, given the last written one. If its confidence
    is exact or window-aligned and only its times have changed, its start must have moved by more
    than a minute. Every other change is written, because a restart reads it back."""
    if old is None or new.confidence not in (Confidence.EXACT, Confidence.WINDOW):
        return True
    if abs(new.starts - old.starts) > MINUTE:
        return True
    times = {"starts": 0, "releases": ()}
    return msgspec.structs.replace(old, **times) != msgspec.structs.replace(new, **times)


class Effects:
    """Keeps which objects must be written to the store, and writes them after each turn."""

    def __init__(
        self,
        store: Store,
        ledger: Ledger,
        on_made: Callable[[Wire], None] = lambda _: None,
        *,
        contain: Contain | None = None,
    ) -> None:
        """`on_made` is called with each pod that was created, so that its watch event can be
        ignored. `contain` is called with the object and the error if the writes of an object cannot
        be built; without `contain` the error is raised."""
        self._store = store
        self._ledger = ledger
        self._on_made = on_made
        self._contain = contain
        self._runs: dict[str, None] = {}
        self._untold: dict[str, None] = {}  # runs with new pods whose status is delayed
        self._has_refused = False  # the server refused a pod
        self._bindings: list[Order] = []  # bindings of pods created in this round
        self._begun: dict[str, None] = {}  # runs whose pods were created along with their leases
        self._waiting: list[Order] = []  # statuses, written after all other orders
        self._put_off: set[str] = set()  # keys whose statuses wait for the next turn
        self._reservations: dict[str, None] = {}
        self._budgets: dict[str, None] = {}
        self._said = StatusCache()
        self._is_sending = False
        self._heard: list[tuple[Place, int]] = []  # events that arrived while sending
        self._created: dict[str, None] = {}  # reservations whose objects exist
        self._plans: dict[str, Reservation] = {}  # as last written

    def owe_everything(self, world: World) -> None:
        """Put all objects on the list, because after a recovery it is not known which writes were
        done."""
        self._runs.update(dict.fromkeys(world.runs))
        self._runs.update(dict.fromkeys(world.pods_by_run))
        self._reservations.update(dict.fromkeys(world.reservations))
        self._budgets.update(dict.fromkeys(world.budgets))

    def owe(self, turn: Turn) -> None:
        self._runs.update(turn.touched)
        self._runs.update(turn.world.work.runs)
        self._reservations.update(dict.fromkeys(turn.reservations))
        self._budgets.update(dict.fromkeys(turn.world.work.take_budgets()))

    @property
    def are_owed(self) -> bool:
        return bool(self._runs or self._reservations or self._budgets)

    def hear(self, kind: str, obj: Wire) -> bool:
        """Handle a watch event: `obj` was written, perhaps by this process. Return whether its
        status must be written again, because another process wrote it. Events during our own writes
        are examined after them."""
        found = stamps(obj)
        uid = "" if kind == "Reservation" else found.uid
        place = (kind, found.namespace, found.name, uid)
        if self._is_sending:
            self._heard.append((place, found.version))
            return False
        return self._owe_again(place, found.version)

    def _owe_again(self, place: Place, version: int) -> bool:
        kind, namespace, name, uid = place
        if not self._said.hear(place, version):
            return False
        match kind:
            case "Run":
                self._runs[uid] = None
            case "Budget":
                self._budgets[f"{namespace}/{name}"] = None
            case _:
                self._plans.pop(f"{namespace}/{name}", None)
                self._reservations[f"{namespace}/{name}"] = None
        return True

    def begin(self, turn: Turn) -> list[Order]:
        """Return orders to create pods of the leases that this turn opened, for writing along with
        the leases; pass the answers to `settle`. Return none if no other process may lead: a pod is
        then created with its node, after its lease."""
        orders: list[Order] = []
        if not self._ledger.is_shared:
            return orders
        opened = dict.fromkeys(lease.uid for batch in turn.batches for lease in batch.opened)
        for uid in opened:
            if len(orders) >= ROUND_MAX:
                break
            with self._apart("Run", uid, turn.world.runs.get(uid)):
                makes = pod_orders(turn, uid).makes
                orders += [self._making(turn.world, order, uid) for order in makes]
                self._begun.update({uid: None} if makes else {})
        return orders

    def settle(self, orders: Sequence[Order], answers: Sequence[Answer]) -> bool:
        """Handle the answer to each order, and put failed orders back on the list. Return whether
        none failed."""
        complete = True
        for order, answer in zip(orders, answers, strict=True):
            if not order.settle(answer):
                order.owed[order.key] = None
                complete = False
        return complete

    async def perform(self, turn: Turn) -> bool:
        """Do all writes on the list, in rounds, so that the first pods start while the last are
        created. Return whether all succeeded; failed ones stay on the list."""
        self._bindings = []  # bindings of pods from `begin` are ordered again
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
                orders += self._run_orders(turn, uid)
            if len(orders) >= ROUND_MAX:
                complete &= await self._place(orders)
                orders = []
        for key in budgets:
            with self._apart("Budget", key):
                orders += self._budget_orders(turn, key)
        for first in range(0, len(orders), ROUND_MAX):
            complete &= await self._place(orders[first : first + ROUND_MAX])
        waiting = self._due_statuses()
        for first in range(0, len(waiting), ROUND_MAX):
            complete &= await self._send(waiting[first : first + ROUND_MAX])
        self._begun.clear()
        # A created or finally refused pod changes its run's status, which the next turn writes,
        # whether or not the pod was seen by then. Without this, one left over would keep the loop
        # from resting while anything else is retried.
        self._runs.update(self._untold)
        turn.again = turn.again or bool(self._untold) or self._has_refused
        self._has_refused = False
        return complete

    def _due_statuses(self) -> list[Order]:
        """Return the statuses to write in this turn. If pods were just created, the next turn may
        change the statuses again; then each status is put off by one turn, but only once."""
        waiting, self._waiting = self._waiting, []
        if not self._untold:
            self._put_off.clear()
            return waiting
        due = []
        for order in waiting:
            if order.key in self._put_off:
                self._put_off.discard(order.key)
                due.append(order)
            else:
                self._put_off.add(order.key)
                order.owed[order.key] = None
        return due

    @contextmanager
    def _apart(self, kind: str, key: str, run: Run | None = None) -> Iterator[None]:
        """Contain an error in a block that builds the writes of one object. Those writes are
        dropped until the object changes, and other objects are still written."""
        try:
            yield
        except Exception as error:
            if self._contain is None:
                raise
            namespace, _, name = (run.key if run is not None else key).rpartition("/")
            uid = "" if run is None else run.uid
            self._contain(About(kind, name, namespace, uid), error)

    async def _place(self, orders: list[Order]) -> bool:
        """Do one round of writes: pods and Reservations first; then confirm leadership, then do the
        writes that need it. Other statuses are kept for later. If no other process can lead on this
        store, do all writes at once. Return whether all writes succeeded; failed ones stay on the
        list."""
        if not self._ledger.is_shared:
            return await self._send(orders)
        plain = [each for each in orders if not each.needs_confirmation]
        self._waiting += [order for order in plain if order.is_status]
        complete = await self._send([order for order in plain if not order.is_status])
        confirmed = [each for each in orders if each.needs_confirmation] + self._bindings
        self._bindings = []
        if confirmed:
            # The uid and version in each write were known before this read; otherwise the read
            # would prove nothing.
            await self._ledger.confirm()
            complete &= await self._send(confirmed)
        return complete

    async def _send(self, orders: list[Order]) -> bool:
        answers: Sequence[Answer]
        self._is_sending = True
        try:
            answers = await self._store.write_all([order.write for order in orders])
        except StoreError as error:
            answers = [error] * len(orders)
        finally:
            self._is_sending = False
        complete = self.settle(orders, answers)
        heard, self._heard = self._heard, []
        for place, version in heard:
            complete &= not self._owe_again(place, version)
        return complete

    def _run_orders(self, turn: Turn, uid: str) -> list[Order]:
        world = turn.world
        run = world.wanted_run(uid)
        was_untold = uid in self._untold
        self._untold.pop(uid, None)
        orders: list[Order] = []
        if run is not None and LEASES_CLOSED not in run.finalizers and not run.deleting:
            orders.append(self._holding(run))
        pods = pod_orders(turn, uid)
        orders += [self._removal(world, order, uid) for order in pods.removes]
        orders += [self._release(pod, uid) for pod in pods.releases]
        orders += [self._making(world, order, uid) for order in pods.makes]
        orders += [self._binding(world, order, uid) for order in pods.binds]
        if run is None:
            return orders
        if run.deleting and not world.open_by_run.get(uid):
            # Once released, its name may be used by another Run.
            is_held = LEASES_CLOSED in run.finalizers
            return [*orders, self._letting_go(run)] if is_held else orders
        if (pods.makes or uid in self._begun) and not was_untold:
            # The pods will be bound in a moment; write one status after that.
            self._untold[uid] = None
            return orders
        place = ("Run", run.namespace, run.name, run.uid)
        status = run_status(world, run, turn.now)
        return orders + self._status_orders(self._runs, uid, place, status)

    def _making(self, world: World, order: MakePod, uid: str) -> Order:
        # Record the pod before requesting it: until the outcome is known it may use its GPUs.
        world.put_pod(order.pod)

        def settle(answer: Answer) -> bool:
            if isinstance(answer, Unavailable):
                world.drop_pod(order.pod.key)
            elif isinstance(answer, Invalid | Forbidden):
                # A final refusal: treat it as a rejection by the node.
                why = f"the API server rejected the pod: {answer}"
                world.put_pod(replace(order.pod, phase=PodPhase.FAILED, reason=why[:WORDS_MAX]))
                self._has_refused = True
                return True
            elif isinstance(answer, dict):
                made = pod_from_wire(answer, gpu_resource=world.policy.gpu_resource)
                world.put_pod(made)
                self._on_made(answer)
                if not made.placed:
                    bind = BindPod(pod=made, node=order.pod.node)
                    self._bindings.append(self._binding(world, bind, uid))
            # AlreadyExists: it is the pod that was ordered; its event will come.
            return isinstance(answer, dict | AlreadyExists)

        wire = without_node(order.wire) if self._ledger.is_shared else order.wire
        return Order(self._runs, uid, Create(wire), settle)

    def _binding(self, world: World, order: BindPod, uid: str) -> Order:
        pod = order.pod

        def settle(answer: Answer) -> bool:
            if answer is None:
                known = world.pods.get(pod.key)
                if known is not None and known.uid == pod.uid:
                    world.put_pod(replace(known, placed=True))
            elif isinstance(answer, NotFound):
                world.drop_pod(pod.key)
            # After a conflict the pod has changed; the next order uses its new state.
            return answer is None or isinstance(answer, NotFound)

        write = Bind(pod.namespace, pod.name, order.node, pod.uid, pod.version)
        return Order(self._runs, uid, write, settle, needs_confirmation=True)

    def _removal(self, world: World, order: RemovePod, uid: str) -> Order:
        def settle(answer: Answer) -> bool:
            if isinstance(answer, NotFound):
                world.drop_pod(pod.key)
            return answer is None or isinstance(answer, NotFound)

        pod, version = order.pod, order.version
        if self._ledger.is_shared:
            version = pod.version or None
        write = Delete("Pod", pod.namespace, pod.name, pod.uid or None, order.grace, version)
        return Order(self._runs, uid, write, settle, needs_confirmation=True)

    def _release(self, pod: Pod, uid: str) -> Order:
        """Remove our finalizer from a pod. If the pod's deletion was requested, the store now
        completes it."""

        def settle(answer: Answer) -> bool:
            return isinstance(answer, dict | NotFound | Conflict)  # on a conflict an event follows

        others = tuple(each for each in pod.finalizers if each != LEASE_CLOSED)
        write = SetFinalizers("Pod", pod.namespace, pod.name, others, pod.finalizers, pod.uid)
        return Order(self._runs, uid, write, settle, needs_confirmation=True)

    def _reservation_orders(self, world: World, subject: str) -> list[Order]:
        reservation = world.reservations.get(subject)
        if reservation is None:
            return []  # it ended and was removed with its run
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
                return False  # its object could not be created yet
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
        place: Place,
        status: Wire,
        *,
        written: Settle = lambda _: True,
    ) -> list[Order]:
        """Return the order to write a status; none if we wrote the same status last. If another
        process has written the status since, leadership is confirmed first: that process may be the
        leader by now."""
        if self._said.says(place, status):
            return []

        def settle(answer: Answer) -> bool:
            if isinstance(answer, NotFound):
                return written(answer)  # the object is gone, and nobody reads its status
            if isinstance(answer, StoreError):
                return False
            self._said.note(place, status, answer)
            return written(answer)

        is_disputed = self._said.is_disputed(place)
        write = PatchStatus(*place[:3], status)
        return [Order(owed, key, write, settle, needs_confirmation=is_disputed, is_status=True)]

    def _holding(self, run: Run) -> Order:
        return self._finalizers(run, (*run.finalizers, LEASES_CLOSED), needs_confirmation=False)

    def _letting_go(self, run: Run) -> Order:
        others = tuple(each for each in run.finalizers if each != LEASES_CLOSED)
        return self._finalizers(run, others, needs_confirmation=True)

    def _finalizers(self, run: Run, wanted: tuple[str, ...], *, needs_confirmation: bool) -> Order:
        def settle(answer: Answer) -> bool:
            return isinstance(answer, dict | NotFound | Conflict)  # on a conflict an event follows

        write = SetFinalizers("Run", run.namespace, run.name, wanted, run.finalizers, run.uid)
        return Order(self._runs, run.uid, write, settle, needs_confirmation)
