"""The World: the fold of all stored objects, with the indices that decisions need.

It is changed one fact at a time, each at the cost of what that fact touches, and can be rebuilt
from its facts at any time with the same result (`rebuilt`). `control` reads it and, through a
turn, folds what it decides; what-ifs run on `fleet` and `accounts` under `what_if`. It has no
clock: whoever asks brings `now`.
"""

from msgspec.structs import replace

from leasehold.core.facts import (
    Aggregate,
    Budget,
    Cause,
    Closed,
    Ending,
    Envelope,
    EnvelopeKey,
    Gang,
    Lease,
    Node,
    Pod,
    PodPhase,
    Record,
    Reservation,
    Resolution,
    Role,
    Run,
    RunKey,
    Uid,
)
from leasehold.core.ledger.checkpoint import Carried
from leasehold.core.ledger.lowered import LoweredCaps
from leasehold.core.policy import Policy
from leasehold.core.units import Instant
from leasehold.core.verdicts import CoverStep, Refused
from leasehold.core.world.accounts import UNLIMITED, Accounts, Claim, Term
from leasehold.core.world.alike import Waiting
from leasehold.core.world.book import WHOLE, Attempt, Book, base_reason
from leasehold.core.world.fleet import Fleet
from leasehold.core.world.tree import Tree
from leasehold.core.world.what_if import WhatIf


class Head(Record):
    """Where the ledger stands."""

    seq: int = 0
    digest: str = "0" * 64
    epoch: int = 1
    instant: Instant = 0


class Overdraft(Record):
    """An announced overdraft of an envelope, an aggregate, or a deleted Budget's envelope."""

    subject: str
    since: Instant
    batch: int
    commitment: str


class World:
    """Mutable, owned by one loop. Fields are read freely; they are changed by `put_`/`fold_`."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.what_if = WhatIf()
        self.fleet = Fleet(self.what_if)
        self.accounts = Accounts(self.what_if)
        self.head = Head()
        self.carried = Carried()  # of what is archived and no longer here
        self.budgets: dict[str, Budget] = {}
        self.envelopes: dict[EnvelopeKey, Envelope] = {}
        self.aggregates: dict[EnvelopeKey, tuple[Aggregate, ...]] = {}
        self._tree: Tree | None = None
        self.runs: dict[Uid, Run] = {}
        self.uid_of: dict[RunKey, Uid] = {}
        self.books: dict[Uid, Book] = {}
        self.leases: dict[str, Lease] = {}
        self.terms: dict[str, Term] = {}  # of open leases
        self.open_by_run: dict[Uid, dict[str, None]] = {}
        self.open_by_node: dict[str, dict[str, None]] = {}
        self.open_by_payer: dict[EnvelopeKey, dict[str, None]] = {}
        self.open_by_pod: dict[str, dict[str, None]] = {}  # namespace/pod
        self.ending: dict[str, None] = {}
        self.moving: dict[str, None] = {}  # of those, pods' that leave a drained node for a spare
        self.yielding: dict[str, int] = {}  # by node: spares, and leases of elastic runs
        self.pods: dict[str, Pod] = {}
        self.pods_by_run: dict[Uid, dict[str, None]] = {}
        self.pods_by_node: dict[str, dict[str, None]] = {}
        self._loads: dict[str, tuple[str, int, int, int, int]] = {}  # foreign load by pod
        self.reservations: dict[str, Reservation] = {}
        self.reservation_of: dict[Uid, str] = {}  # the newest
        self.resolutions: dict[str, Resolution] = {}
        self.resolution_of_seed: dict[str, str] = {}
        self.victims: dict[str, str] = {}  # lease -> the Resolution that cut it
        self.overdrafts: dict[str, Overdraft] = {}
        self.lowered = LoweredCaps()
        self.budget_facts: dict[str, bytes] = {}  # what the ledger was told
        self.node_facts: dict[str, tuple[int, str, str]] = {}
        self.dirty: dict[Uid, None] = {}  # runs to look at in the next turn
        self.dirty_budgets: dict[str, None] = {}  # whose status is to be written
        self.unsettled: dict[str, None] = {}  # budgets that may be overdrawn since they were seen
        self.in_place: dict[EnvelopeKey, tuple[Envelope, int]] = {}  # see core.decisions.overdraft
        self.node_changes = 0  # counts changes that may let a failing bind succeed
        self.lost_pods: dict[str, None] = {}  # gone without our asking, their lease still open
        self.finished_at: dict[str, Instant] = {}  # when the process of a gone pod really ended
        self.restarted: dict[str, tuple[Uid, Instant]] = {}  # pod -> the one made again, when
        self.bound: dict[tuple[Uid, int], int] = {}  # unit -> attempt whose pods were all bound
        self.alarms: list[tuple[Instant, Uid]] = []  # a heap; an early or doubled one is harmless
        self.money_alarms: list[tuple[Instant, str]] = []  # a heap of (when, budget)
        self.pending: dict[Uid, None] = {}  # runs with units that wait
        self.elastic: dict[Uid, None] = {}  # runs that are not as wide as they wish
        self.blocked_binds: dict[Uid, int] = {}  # -> node_changes when its binds kept failing
        self.refusals: dict[Uid, Refused] = {}  # why a pending run waits
        self.waiting = Waiting()
        self.traces: dict[Uid, tuple[CoverStep, ...]] = {}  # the newest walk of cover
        self.held: dict[str, int] = {}  # GPUs by node that activations under way keep
        self.claims: tuple[Claim, ...] = ()  # money that planned starts keep
        self.refused_leases: dict[str, None] = {}  # the store will never take their objects
        self.is_taken_up = False  # whether anything was decided since it was rebuilt

    @property
    def tree(self) -> Tree:
        if self._tree is None:
            self._tree = Tree(self.budgets.values())
        return self._tree

    def carry(self, carried: Carried) -> None:
        """Begin with what is archived; before anything else is put or folded."""
        assert not self.books, "a World begins with what is carried"
        self.carried = carried
        self.accounts.carry(carried.charges)
        for uid, book in carried.books.items():
            self.book(uid).carry(book)

    # Objects that users and nodes write.

    def put_budget(self, budget: Budget) -> None:
        gone = self._forget_envelopes(budget.key)
        self.budgets[budget.key] = budget
        self.lowered.note(budget, batch=self.head.seq)
        for envelope in budget.envelopes:
            self.envelopes[envelope.key] = envelope
            self.aggregates[envelope.key] = tuple(
                each for each in budget.aggregates if envelope.key in each.members
            )
            self._count_since(envelope.key, envelope.start)
        self._close_windows(gone)
        self._tree = None
        self.touch_budget(budget.key)

    def drop_budget(self, key: str) -> None:
        gone = self._forget_envelopes(key)
        self.budgets.pop(key, None)
        self._close_windows(gone)
        self._tree = None
        self.touch_budget(key)

    def touch_budget(self, key: str) -> None:
        """Something happened to what it may pay for, or to what it pays for."""
        self.dirty_budgets[key] = None
        self.unsettled[key] = None

    def _forget_envelopes(self, key: str) -> list[EnvelopeKey]:
        old = self.budgets.get(key)
        keys = [envelope.key for envelope in old.envelopes] if old else []
        for each in keys:
            del self.envelopes[each]
            del self.aggregates[each]
        return keys

    def _close_windows(self, keys: list[EnvelopeKey]) -> None:
        """Envelopes that are gone have no window: all that they ever paid for counts."""
        for key in keys:
            if key not in self.envelopes:
                self._count_since(key, 0)

    def _count_since(self, payer: EnvelopeKey, since: Instant) -> None:
        """When the window moved, what counts as used is asked of the leases again."""
        if self.accounts.of(payer).since == since:
            return
        self.accounts.reopen(payer, since)
        for name in sorted(self.open_by_payer.get(payer, ())):
            self.accounts.add(self.leases[name], self.terms[name])
        for lease in self.leases.values():
            if lease.payer == payer and not lease.is_open:
                self.accounts.settle(lease)

    def put_node(self, node: Node) -> None:
        state = self.fleet.nodes.get(node.name)
        known = state.node if state is not None else None
        self.fleet.put_node(node)
        if known is None:
            for name in sorted(self.open_by_node.get(node.name, ())):
                self.fleet.take(self.leases[name])
            for key in sorted(self.pods_by_node.get(node.name, ())):
                self._loads.pop(key, None)  # it was counted on a node that was not there
                self._reload(key)
        # A heartbeat is a new version of the same: it lets no bind succeed that failed.
        if known is None or replace(known, version=node.version) != node:
            self.node_changes += 1
            self._touch_node(node.name)

    def drop_node(self, name: str) -> None:
        if name in self.fleet.nodes:
            for key in sorted(self.pods_by_node.get(name, ())):
                self._loads.pop(key, None)
            self.fleet.drop_node(name)
            self.node_changes += 1
            self._touch_node(name)

    def _touch_node(self, name: str) -> None:
        for lease in self.open_by_node.get(name, ()):
            self.dirty[self.leases[lease].uid] = None

    def put_run(self, run: Run) -> None:
        old = self.runs.get(run.uid)
        self.runs[run.uid] = run
        self.uid_of[run.key] = run.uid
        if run.seen_running and run.spec.gang is Gang.RUN:
            known = self.bound.get((run.uid, WHOLE), 0)
            self.bound[(run.uid, WHOLE)] = max(known, run.seen_running)
        self.fleet.requests.setdefault(run.uid, (run.spec.cpu_milli, run.spec.memory_bytes))
        self.dirty[run.uid] = None
        if old is not None and old.spec.max_duration != run.spec.max_duration:
            for name in sorted(self.open_by_run.get(run.uid, ())):
                self._reterm(self.leases[name])

    def drop_run(self, uid: Uid) -> None:
        """The object is gone. Its leases are not, until they are closed."""
        run = self.runs.get(uid)
        if run is None:
            return
        self.dirty[uid] = None
        if self.open_by_run.get(uid):
            self.runs[uid] = replace(run, deleting=True)
            return
        del self.runs[uid]
        if self.uid_of.get(run.key) == uid:
            del self.uid_of[run.key]
        for table in (self.pending, self.elastic, self.refusals, self.traces):
            table.pop(uid, None)
        self.waiting.forget(uid)

    def put_pod(self, pod: Pod) -> None:
        key = pod.key
        old = self.pods.get(key)
        if old is not None and pod.version and pod.version < old.version:
            return  # a lagging watch tells old news
        if old is not None and replace(old, version=pod.version) == pod:
            self.pods[key] = pod  # what else its status says is nothing to us
            return
        if old is not None and old.node != pod.node:
            self._shed(key)
            _discard(self.pods_by_node, old.node, key)
        self.pods[key] = pod
        self.pods_by_node.setdefault(pod.node, {})[key] = None
        if pod.run_uid:
            self.pods_by_run.setdefault(pod.run_uid, {})[key] = None
            self.dirty[pod.run_uid] = None
            if pod.ended_because_deleted and self._is_wanted(pod):
                self.lost_pods[key] = None
        self._reload(key)

    def drop_pod(self, key: str) -> None:
        pod = self.pods.get(key)
        if pod is None:
            return
        if self._has_unread_end(key, pod):
            self.pods[key] = replace(pod, deleting=True)
            return
        del self.pods[key]
        self._shed(key)
        _discard(self.pods_by_node, pod.node, key)
        if pod.run_uid:
            _discard(self.pods_by_run, pod.run_uid, key)
            self.dirty[pod.run_uid] = None
            if key in self.open_by_pod and pod.phase is not PodPhase.ORDERED:
                self._note_loss(key, pod)

    def _is_wanted(self, pod: Pod) -> bool:
        """Whether leases are open for the pod, none of them is to end, and it is not the one that
        we remove to make it again in place."""
        names = self.open_by_pod.get(pod.key, {})
        made_again, _ = self.restarted.get(pod.key, ("", 0))
        is_ours = made_again == pod.uid and pod.has_ended
        return (
            bool(names) and not is_ours and all(self.leases[name].ending is None for name in names)
        )

    def _has_unread_end(self, key: str, pod: Pod) -> bool:
        """Its object went as soon as it had ended: how it ended is still to be acted on."""
        return (
            pod.has_ended and not pod.reason and key not in self.lost_pods and self._is_wanted(pod)
        )

    def _note_loss(self, key: str, pod: Pod) -> None:
        if pod.finished_at is not None:
            self.finished_at[key] = pod.finished_at
        if not pod.has_ended and self._is_wanted(pod):
            self.lost_pods[key] = None

    def _reload(self, key: str) -> None:
        """A pod that lives without an open lease of ours takes its GPUs as a foreign one does."""
        pod = self.pods.get(key)
        self._shed(key)
        if pod is None or pod.has_ended or pod.phase is PodPhase.ORDERED:
            return
        leased = self.open_by_pod.get(key)
        if leased and any(self.leases[name].node == pod.node for name in leased):
            return
        if pod.node not in self.fleet.nodes:
            return  # news of the pod came before news of its node, which will count it
        mask = sum(1 << slot for slot in set(pod.slots))
        load = (pod.node, pod.gpus, pod.cpu_milli, pod.memory_bytes, mask)
        self._loads[key] = load
        self.fleet.load(
            load[0], gpus=load[1], cpu_milli=load[2], memory_bytes=load[3], pods=1, slots=mask
        )

    def _shed(self, key: str) -> None:
        load = self._loads.pop(key, None)
        if load is not None:
            node, gpus, cpu_milli, memory_bytes, slots = load
            self.fleet.load(
                node,
                gpus=-gpus,
                cpu_milli=-cpu_milli,
                memory_bytes=-memory_bytes,
                pods=-1,
                slots=slots,
            )

    # What the ledger says.

    def unit_of(self, uid: Uid, group: int) -> int:
        run = self.runs.get(uid)
        return group if run is not None and run.spec.gang is Gang.GROUP else WHOLE

    def attempt_of(self, lease: Lease) -> Attempt | None:
        book = self.books.get(lease.uid)
        return book.attempt_of(lease, self.unit_of(lease.uid, lease.group)) if book else None

    def book(self, uid: Uid) -> Book:
        known = self.books.get(uid)
        if known is None:
            known = self.books[uid] = Book()
        return known

    def term_of(self, lease: Lease) -> Term:
        """When its GPUs come free as far as is known, and what it may still cost."""
        if lease.ending is not None:
            return Term(lease.ending.deadline, 0)
        run = self.runs.get(lease.uid)
        attempt = self.attempt_of(lease)
        if run is None or run.spec.max_duration is None or attempt is None:
            return UNLIMITED
        limit = attempt.started + run.spec.max_duration
        return Term(limit, limit)

    def _reterm(self, lease: Lease) -> None:
        self.accounts.remove(lease, self.terms[lease.name])
        self.terms[lease.name] = term = self.term_of(lease)
        self.accounts.add(lease, term)
        self.touch_budget(lease.payer.rpartition("/")[0])  # its hours run out at another time

    def fold_open(self, lease: Lease) -> None:
        """A lease begins; slots and money are taken."""
        assert lease.name not in self.leases, lease.name
        name = lease.name
        self.leases[name] = lease
        self.book(lease.uid).open(lease, self.unit_of(lease.uid, lease.group))
        self._index(lease)
        self.terms[name] = term = self.term_of(lease)
        self.fleet.take(lease)
        self.accounts.add(lease, term)
        if lease.ending is not None:
            self._note_ending(lease)
        self.dirty[lease.uid] = None
        self.touch_budget(lease.payer.rpartition("/")[0])

    def _count_yielding(self, lease: Lease, sign: int) -> None:
        """Where nothing gives way short of a lottery, resolve need not look closer."""
        run = self.runs.get(lease.uid)
        elastic = run is not None and run.spec.malleable is not None
        if lease.role is Role.SPARE or elastic:
            count = self.yielding.get(lease.node, 0) + sign
            if count:
                self.yielding[lease.node] = count
            else:
                self.yielding.pop(lease.node, None)

    def _index(self, lease: Lease) -> None:
        name = lease.name
        self._count_yielding(lease, 1)
        self.open_by_run.setdefault(lease.uid, {})[name] = None
        self.open_by_node.setdefault(lease.node, {})[name] = None
        self.open_by_payer.setdefault(lease.payer, {})[name] = None
        if lease.pod:
            key = f"{lease.namespace}/{lease.pod}"
            self.open_by_pod.setdefault(key, {})[name] = None
            if key in self.pods:
                self._reload(key)

    def fold_ending(self, name: str, ending: Ending) -> Lease:
        """A lease must end; said once."""
        lease = self.leases[name]
        assert lease.is_open, name
        assert lease.ending is None, name
        lease = self.leases[name] = replace(lease, ending=ending)
        self._reterm(lease)
        self._note_ending(lease)
        self.dirty[lease.uid] = None
        return lease

    def _note_ending(self, lease: Lease) -> None:
        self.ending[lease.name] = None
        assert lease.ending is not None, lease.name
        if base_reason(lease.ending.reason) is Closed.SWAP and lease.role is not Role.SPARE:
            self.moving[lease.name] = None
        self.book(lease.uid).mark(lease, voluntary=lease.name not in self.victims)

    def fold_close(
        self, name: str, *, end: Instant, closure: str, cause: Cause | None, batch: int
    ) -> Lease:
        """A lease ends; slots and money are free."""
        lease = self.leases[name]
        assert lease.is_open, name
        assert end >= lease.start, name
        self.fleet.give(lease)
        self.accounts.remove(lease, self.terms.pop(name))
        lease = replace(lease, end=end, closure=closure, cause=cause, close_batch=batch)
        self.leases[name] = lease
        self.accounts.settle(lease)
        self.book(lease.uid).close(lease, self.unit_of(lease.uid, lease.group))
        self._unindex(lease)
        self.dirty[lease.uid] = None
        self.touch_budget(lease.payer.rpartition("/")[0])
        if lease.role is Role.BORROWED:
            self._touch_node(lease.node)  # a swap may be waiting for this filler to go
        return lease

    def _unindex(self, lease: Lease) -> None:
        name = lease.name
        self._count_yielding(lease, -1)
        _discard(self.open_by_run, lease.uid, name)
        _discard(self.open_by_node, lease.node, name)
        _discard(self.open_by_payer, lease.payer, name)
        self.ending.pop(name, None)
        self.moving.pop(name, None)
        if lease.pod:
            key = f"{lease.namespace}/{lease.pod}"
            _discard(self.open_by_pod, key, name)
            if key not in self.open_by_pod:
                self.lost_pods.pop(key, None)
                self.finished_at.pop(key, None)
                self.restarted.pop(key, None)
            if key in self.pods:
                self._reload(key)

    def fold_closed_lease(self, lease: Lease) -> None:
        """A lease of the past, read back whole."""
        assert lease.end is not None, lease.name
        assert lease.name not in self.leases, lease.name
        self.leases[lease.name] = lease
        book = self.book(lease.uid)
        unit = self.unit_of(lease.uid, lease.group)
        book.open(lease, unit)
        if lease.ending is not None:
            book.mark(lease, voluntary=lease.name not in self.victims)
        book.close(lease, unit)
        self.accounts.settle(lease)

    def fold_reservation(self, reservation: Reservation) -> None:
        subject = reservation.subject
        self.reservations[subject] = reservation
        newest = self.reservation_of.get(reservation.uid)
        if newest is None or self.reservations[newest].batch <= reservation.batch:
            self.reservation_of[reservation.uid] = subject
        self.dirty[reservation.uid] = None

    def fold_resolution(self, resolution: Resolution) -> None:
        if resolution.name in self.resolutions:
            return
        self.resolutions[resolution.name] = resolution
        for name in resolution.victims:
            self.victims[name] = resolution.name
        if resolution.lottery is not None:
            self.resolution_of_seed[resolution.lottery.seed] = resolution.name
        if resolution.beneficiary_uid:
            self.book(resolution.beneficiary_uid).resolved_in.append(resolution.batch)


def _discard(index: dict[str, dict[str, None]], key: str, name: str) -> None:
    names = index[key]
    names.pop(name, None)
    if not names:
        del index[key]
