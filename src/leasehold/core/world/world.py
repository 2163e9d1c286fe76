"""The World: the fold of all stored objects, with the indices that decisions need.

It changes one fact at a time, at the cost of what that fact touches, and can be rebuilt from its
facts with the same result (`rebuilt`). `control` reads it and, through a turn, folds what it
decides. What-ifs change `fleet` and `accounts` under `what_if`. It has no clock: callers pass
`now`.
"""

from msgspec.structs import replace

from leasehold.core.facts import (
    Aggregate,
    Budget,
    Closed,
    Closure,
    Ending,
    Envelope,
    EnvelopeKey,
    Gang,
    Lease,
    Node,
    Pod,
    Record,
    Role,
    Run,
    RunKey,
    Uid,
)
from leasehold.core.ledger.checkpoint import BatchFacts, Carried
from leasehold.core.ledger.head import Head
from leasehold.core.ledger.lowered import LoweredCaps
from leasehold.core.policy import Policy
from leasehold.core.reservations import Reservation, State
from leasehold.core.resolutions import Resolution
from leasehold.core.units import FOREVER, Instant
from leasehold.core.world.accounts import UNLIMITED, Accounts, KnownEnd
from leasehold.core.world.book import WHOLE, Attempt, Book
from leasehold.core.world.fleet import Fleet
from leasehold.core.world.journal import Journal
from leasehold.core.world.memory import Memory
from leasehold.core.world.open_index import OpenIndex
from leasehold.core.world.pods import PodIndex
from leasehold.core.world.steps import Steps
from leasehold.core.world.tree import Tree
from leasehold.core.world.what_if import WhatIf
from leasehold.core.world.worklist import Worklist


class Overdraft(Record):
    """An announced overdraft of an envelope, of an aggregate, or of a deleted Budget's envelope."""

    subject: str
    since: Instant
    batch: int
    commitment: str


class World:
    """The mutable state that decisions are made from; one loop owns it.

    Fields are read freely. Facts change only by `put_` and `drop_` (what users and nodes write) and
    `fold_` (what the ledger states); a house rule enforces it.
    """

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.work = Worklist()
        self.memory = Memory()
        self.journal = Journal()
        self.steps = Steps()
        self.what_if = WhatIf(self.steps)
        self.fleet = Fleet(self.what_if)
        self.accounts = Accounts(self.what_if)
        self.head = Head()
        self.carried = Carried()  # of archived batches
        self.budgets: dict[str, Budget] = {}
        self.envelopes: dict[EnvelopeKey, Envelope] = {}
        self.aggregates: dict[EnvelopeKey, tuple[Aggregate, ...]] = {}
        self._tree: Tree | None = None
        self.runs: dict[Uid, Run] = {}
        # runs in `runs` whose objects are gone, kept for their leases
        self.gone_runs: dict[Uid, None] = {}
        self.uid_of: dict[RunKey, Uid] = {}
        self.books: dict[Uid, Book] = {}
        self.leases: dict[str, Lease] = {}
        self.terms: dict[str, KnownEnd] = {}  # of open leases
        self._open = OpenIndex()
        self.open_by_run = self._open.by_run
        self.open_by_node = self._open.by_node
        self.open_by_payer = self._open.by_payer
        self.open_by_pod = self._open.by_pod
        self.yielding = self._open.yielding
        self.ending: dict[str, None] = {}
        # the part of `ending` of pods that move from a drained node to a spare
        self.moving: dict[str, None] = {}
        self._pods = PodIndex(self.fleet, self.leases, self._open.by_pod)
        self.pods = self._pods.by_key
        self.pods_by_run = self._pods.by_run
        self.pods_by_node = self._pods.by_node
        self.lost_pods = self._pods.lost
        self.finished_at = self._pods.finished_at
        self.began_at = self._pods.began_at
        self.restarted = self._pods.restarted
        self.reservations: dict[str, Reservation] = {}
        self.reservation_of: dict[Uid, str] = {}  # newest Reservation
        self.resolutions: dict[str, Resolution] = {}
        self.resolution_of_seed: dict[str, str] = {}
        self._resolutions_of: dict[str, list[str]] = {}  # by subject, in order
        self.resolution_for: dict[Uid, str] = {}  # newest Resolution of each beneficiary
        self.activating: dict[Uid, None] = {}  # runs for which an activation has a hold
        self.victims: dict[str, str] = {}  # lease -> the Resolution that preempted it
        self.overdrafts: dict[str, Overdraft] = {}
        self.lowered = LoweredCaps()
        self.budget_facts: dict[str, bytes] = {}  # as stated in the ledger
        self.node_facts: dict[str, tuple[int, str, str]] = {}
        self.node_changes = 0  # counts changes after which a failing bind may succeed
        self.bound: dict[tuple[Uid, int], int] = {}  # unit -> attempt whose pods were all bound
        # leases whose objects the store will never accept
        self.refused_leases: dict[str, None] = {}

    @property
    def tree(self) -> Tree:
        if self._tree is None:
            self._tree = Tree(self.budgets.values())
        return self._tree

    def carry(self, carried: Carried) -> None:
        """Start from the sums over archived leases; must come before any other put or fold."""
        assert not self.books, "a World begins with what is carried"
        self.carried = carried
        self.accounts.carry(carried.charges)
        for uid, book in carried.books.items():
            self._kept_book(uid).carry(book)

    # What administrators, users and nodes write.

    def put_policy(self, policy: Policy) -> None:
        """Use this policy from the next turn on."""
        assert policy.batch_bytes_max > 0
        assert policy.grace_max >= 0
        self.policy = policy
        self.journal.note_all()

    def put_budget(self, budget: Budget) -> None:
        keys = {envelope.key for envelope in budget.envelopes}
        assert len(keys) == len(budget.envelopes), budget.key
        assert all(key.rpartition("/")[0] == budget.key for key in keys), budget.key
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
        self.journal.note_all()
        self.work.touch_budget(budget.key)

    def drop_budget(self, key: str) -> None:
        assert key.count("/") == 1, key
        gone = self._forget_envelopes(key)
        assert not any(each in self.aggregates for each in gone), key
        self.budgets.pop(key, None)
        self._close_windows(gone)
        self._tree = None
        self.journal.note_all()
        self.work.touch_budget(key)

    def _forget_envelopes(self, key: str) -> list[EnvelopeKey]:
        old = self.budgets.get(key)
        keys = [envelope.key for envelope in old.envelopes] if old else []
        for each in keys:
            del self.envelopes[each]
            del self.aggregates[each]
        return keys

    def _close_windows(self, keys: list[EnvelopeKey]) -> None:
        """Count everything that these deleted envelopes ever paid for, because they have no window
        any more."""
        for key in keys:
            if key not in self.envelopes:
                self._count_since(key, 0)

    def _count_since(self, payer: EnvelopeKey, since: Instant) -> None:
        """Sum up the used hours again if the window of the envelope has moved."""
        if self.accounts.of(payer).since == since:
            return
        self.accounts.reopen(payer, since)
        for name in sorted(self.open_by_payer.get(payer, ())):
            self.accounts.add(self.leases[name], self.terms[name])
        for lease in self.leases.values():
            if lease.payer == payer and not lease.is_open:
                self.accounts.settle(lease)

    def put_node(self, node: Node) -> None:
        assert node.name, "a node has a name"
        state = self.fleet.nodes.get(node.name)
        known = state.node if state is not None else None
        self.fleet.put_node(node)
        assert node.name in self.fleet.nodes, node.name
        if known is None:
            for name in sorted(self.open_by_node.get(node.name, ())):
                self.fleet.take(self.leases[name])
            self._pods.node_came(node.name)
        # A heartbeat changes only the version, after which no failed bind would succeed.
        if known is None or replace(known, version=node.version) != node:
            self.node_changes += 1
            self.journal.note_all()
            self._touch_node(node.name)

    def drop_node(self, name: str) -> None:
        if name in self.fleet.nodes:
            assert self.fleet.nodes[name].node.name == name, name
            self._pods.node_goes(name)
            self.fleet.drop_node(name)
            assert name not in self.fleet.nodes, name
            self.node_changes += 1
            self.journal.note_all()
            self._touch_node(name)

    def _touch_node(self, name: str) -> None:
        for lease in self.open_by_node.get(name, ()):
            self.work.look_at(self.leases[lease].uid)
        for key in self.pods_by_node.get(name, ()):
            pod = self.pods[key]
            if pod.run_uid and key not in self.open_by_pod and not pod.has_ended:
                # if the node is dead, no other event releases the pod
                self.work.look_at(pod.run_uid)

    def put_run(self, run: Run) -> None:
        old = self.runs.get(run.uid)
        assert run.uid, run.key
        assert old is None or old.key == run.key, "a uid is one run's for ever"
        self.runs[run.uid] = run
        self.gone_runs.pop(run.uid, None)
        self.uid_of[run.key] = run.uid
        if run.seen_running and run.spec.gang is Gang.RUN:
            self.fold_bound(
                run.uid, WHOLE, max(run.seen_running, self.bound.get((run.uid, WHOLE), 0))
            )
        if run.uid not in self.fleet.requests or not self.open_by_run.get(run.uid):
            self.fleet.requests[run.uid] = (run.spec.cpu_milli, run.spec.memory_bytes)
        self.work.look_at(run.uid)
        if old is not None and old.spec.max_duration != run.spec.max_duration:
            for name in sorted(self.open_by_run.get(run.uid, ())):
                self._reterm(self.leases[name])

    def wanted_run(self, uid: Uid) -> Run | None:
        """Return the run if its object exists and can be read, otherwise None.

        If a run's object is gone while leases are open, `runs` keeps its record for the indices
        over these leases only. Decisions must not use it: a later leader would not have it.
        """
        return None if uid in self.gone_runs else self.runs.get(uid)

    def drop_run(self, uid: Uid) -> None:
        """Remove a run whose object is gone or cannot be read.

        If it has open leases the record stays, marked as deleting, until they are closed and a
        later turn looks at the run.
        """
        run = self.runs.get(uid)
        if run is None:
            return
        assert run.uid == uid, uid
        self.work.look_at(uid)
        if self.open_by_run.get(uid):
            self.runs[uid] = replace(run, deleting=True)
            self.gone_runs[uid] = None
            return
        del self.runs[uid]
        self.gone_runs.pop(uid, None)
        if self.uid_of.get(run.key) == uid:
            del self.uid_of[run.key]
        self.work.forget(uid)
        self.memory.forget(uid)
        assert self.uid_of.get(run.key) != uid, uid

    def put_pod(self, pod: Pod) -> None:
        before = self.pods.get(pod.key)
        is_news = self._pods.put(pod)
        assert pod.key in self.pods, pod.key
        if is_news:
            self.journal.note_node(pod.node)
            if before is not None:
                self.journal.note_node(before.node)
        if is_news and pod.run_uid:
            self.work.look_at(pod.run_uid)

    def drop_pod(self, key: str) -> None:
        gone = self._pods.drop(key)
        assert gone is None or gone.key == key, key
        assert gone is None or key not in self.pods, key
        if gone is not None:
            self.journal.note_node(gone.node)
        if gone is not None and gone.run_uid:
            self.work.look_at(gone.run_uid)

    # What the ledger states.

    def unit_of(self, uid: Uid, group: int) -> int:
        run = self.runs.get(uid)
        return group if run is not None and run.spec.gang is Gang.GROUP else WHOLE

    def attempt_of(self, lease: Lease) -> Attempt | None:
        book = self.books.get(lease.uid)
        return book.attempt_of(lease, self.unit_of(lease.uid, lease.group)) if book else None

    def book(self, uid: Uid) -> Book:
        """Return the run's book; an empty one if the ledger does not know the run."""
        return self.books.get(uid) or Book()

    def _kept_book(self, uid: Uid) -> Book:
        known = self.books.get(uid)
        if known is None:
            known = self.books[uid] = Book()
        return known

    def term_of(self, lease: Lease) -> KnownEnd:
        """Return when the lease's GPUs come free, and until when GPU-hours are committed to it."""
        if lease.ending is not None:
            return KnownEnd(lease.ending.deadline, 0)
        run = self.runs.get(lease.uid)
        attempt = self.attempt_of(lease)
        if run is None or run.spec.max_duration is None or attempt is None:
            return UNLIMITED
        limit = attempt.started + run.spec.max_duration
        return KnownEnd(limit, limit)

    def _reterm(self, lease: Lease) -> None:
        self.accounts.remove(lease, self.terms[lease.name])
        self.terms[lease.name] = term = self.term_of(lease)
        self.accounts.add(lease, term)
        self.journal.note_lease(lease, term.frees_at)
        self.work.touch_budget(lease.payer.rpartition("/")[0])  # its hours run out at another time

    def fold_open(self, lease: Lease) -> None:
        """Fold an opened lease: take its slots and money."""
        assert lease.name not in self.leases, lease.name
        assert lease.is_open, lease.name
        name = lease.name
        self.leases[name] = lease
        self._kept_book(lease.uid).open(lease, self.unit_of(lease.uid, lease.group))
        self._index(lease)
        self.terms[name] = term = self.term_of(lease)
        self.fleet.take(lease)
        self.accounts.add(lease, term)
        self.journal.note_lease(lease, term.frees_at)
        if lease.ending is not None:
            self._note_ending(lease)
        self.work.look_at(lease.uid)
        self.work.touch_budget(lease.payer.rpartition("/")[0])

    def _is_elastic(self, lease: Lease) -> bool:
        run = self.runs.get(lease.uid)
        return run is not None and run.spec.malleable is not None

    def _index(self, lease: Lease) -> None:
        self._open.add(lease, is_elastic=self._is_elastic(lease))
        if lease.pod:
            self._pods.reload(lease.pod_key)

    def fold_ending(self, name: str, ending: Ending) -> Lease:
        """Mark a lease as ending, and return it. The lease must be open and not marked yet."""
        lease = self.leases[name]
        assert lease.is_open, name
        assert lease.ending is None, name
        assert ending.deadline >= ending.at, name
        lease = self.leases[name] = replace(lease, ending=ending)
        self._reterm(lease)
        self._note_ending(lease)
        self.work.look_at(lease.uid)
        return lease

    def _note_ending(self, lease: Lease) -> None:
        self.ending[lease.name] = None
        assert lease.ending is not None, lease.name
        if lease.ending.why.reason is Closed.SWAP and lease.role is not Role.SPARE:
            self.moving[lease.name] = None
        self._kept_book(lease.uid).mark(lease, voluntary=lease.name not in self.victims)

    def fold_close(self, name: str, closure: Closure) -> Lease:
        """Fold a closed lease: free its slots and money."""
        lease = self.leases[name]
        assert lease.is_open, name
        assert closure.at >= lease.start, name
        assert closure.cause is None or closure.why.reason is Closed.FAIL, name
        assert closure.began is None or lease.start < closure.began <= closure.at, name
        assert closure.saved is None or lease.start < closure.saved <= closure.at, name
        self.fleet.give(lease)
        self.accounts.remove(lease, self.terms.pop(name))
        self.journal.note_lease(lease, FOREVER)
        lease = replace(lease, closed=closure)
        self.leases[name] = lease
        self.accounts.settle(lease)
        self._kept_book(lease.uid).close(lease, self.unit_of(lease.uid, lease.group))
        self._unindex(lease)
        self.work.look_at(lease.uid)
        self.work.touch_budget(lease.payer.rpartition("/")[0])
        if lease.role is Role.BORROWED:
            self._touch_node(lease.node)  # a swap may wait for this filler to go
        return lease

    def _unindex(self, lease: Lease) -> None:
        pod = self.pods.get(lease.pod_key) if lease.pod else None
        if pod is not None:
            self.journal.note_node(pod.node)  # a pod that outlives its lease takes its node's GPUs
        self._open.remove(lease, is_elastic=self._is_elastic(lease))
        self.ending.pop(lease.name, None)
        self.moving.pop(lease.name, None)
        if lease.pod:
            self._pods.lease_closed(lease.pod_key)

    def fold_closed_lease(self, lease: Lease) -> None:
        """Fold a lease that is already closed, when history is read back."""
        assert lease.end is not None, lease.name
        assert lease.name not in self.leases, lease.name
        self.leases[lease.name] = lease
        book = self._kept_book(lease.uid)
        unit = self.unit_of(lease.uid, lease.group)
        book.open(lease, unit)
        if lease.ending is not None:
            book.mark(lease, voluntary=lease.name not in self.victims)
        book.close(lease, unit)
        self.accounts.settle(lease)

    def fold_reservation(self, reservation: Reservation) -> None:
        subject = reservation.subject
        known = self.reservations.get(subject)
        assert reservation.uid, subject
        assert known is None or (known.uid, known.batch) == (reservation.uid, reservation.batch)
        self.reservations[subject] = reservation
        newest = self.reservation_of.get(reservation.uid)
        if newest is None or self.reservations[newest].batch <= reservation.batch:
            self.reservation_of[reservation.uid] = subject
            if reservation.state is State.ACTIVATING:
                self.activating[reservation.uid] = None
            else:
                self.activating.pop(reservation.uid, None)
        self.work.look_at(reservation.uid)

    def resolutions_of_subject(self, subject: str) -> tuple[Resolution, ...]:
        """Return the Resolutions of a subject in the order of their batches."""
        found = [self.resolutions[name] for name in self._resolutions_of.get(subject, ())]
        return tuple(sorted(found, key=lambda each: each.batch))

    def forget_resolution_of(self, resolution: Resolution) -> None:
        """Drop an archived Resolution from the indices."""
        names = self._resolutions_of.get(resolution.subject, [])
        assert resolution.name not in self.resolutions, resolution.name
        if resolution.name in names:
            names.remove(resolution.name)
        if not names:
            self._resolutions_of.pop(resolution.subject, None)
        if self.resolution_for.get(resolution.beneficiary_uid) == resolution.name:
            del self.resolution_for[resolution.beneficiary_uid]

    def fold_resolution(self, resolution: Resolution) -> None:
        assert bool(resolution.beneficiary) == bool(resolution.beneficiary_uid), resolution.name
        assert len(set(resolution.victims)) == len(resolution.victims), resolution.name
        if resolution.name in self.resolutions:
            return
        self.resolutions[resolution.name] = resolution
        for name in resolution.victims:
            self.victims[name] = resolution.name
        if resolution.lottery is not None:
            self.resolution_of_seed[resolution.lottery.seed] = resolution.name
        self._resolutions_of.setdefault(resolution.subject, []).append(resolution.name)
        if resolution.beneficiary_uid:
            newest = self.resolution_for.get(resolution.beneficiary_uid)
            if newest is None or self.resolutions[newest].batch <= resolution.batch:
                self.resolution_for[resolution.beneficiary_uid] = resolution.name

    # What controllers observe, and which facts the ledger states.

    def fold_bound(self, uid: Uid, unit: int, attempt: int) -> None:
        """Note that nodes accepted all pods of this attempt of a unit."""
        assert attempt > 0, (uid, unit)
        assert attempt >= self.bound.get((uid, unit), 0), (uid, unit)
        self.bound[(uid, unit)] = attempt

    def fold_restart(self, pod: Pod, now: Instant) -> None:
        """Note that a failed pod is removed in order to create it again on the same node."""
        assert self.pods.get(pod.key) is pod, "it is the newest that is known of it"
        self._pods.restart(pod, now)

    def put_refused_lease(self, name: str) -> None:
        """Note that the store will never accept the object of this lease."""
        assert name in self.leases, name
        assert self.leases[name].name == name, name
        self.refused_leases[name] = None
        self.work.look_at(self.leases[name].uid)

    def fold_overdraft(self, overdraft: Overdraft) -> None:
        assert overdraft.subject.count("/") == 2, overdraft.subject
        assert overdraft.commitment, overdraft.subject
        self.overdrafts[overdraft.subject] = overdraft

    def drop_overdraft(self, subject: str) -> None:
        assert subject in self.overdrafts, subject
        assert self.overdrafts[subject].subject == subject, subject
        del self.overdrafts[subject]

    def fold_budget_fact(self, key: str, spec: bytes | None) -> None:
        """Note what the ledger states about a Budget; None: deleted."""
        assert key.count("/") == 1, key
        assert spec is None or spec.startswith(b"{"), key
        if spec is None:
            del self.budget_facts[key]
        else:
            self.budget_facts[key] = spec

    def fold_node_fact(self, name: str, fact: tuple[int, str, str] | None) -> None:
        """Note GPUs, flavor and domain of a node as stated in the ledger; None: gone."""
        assert name, "a node has a name"
        assert fact is None or fact[0] >= 0, name
        if fact is None:
            del self.node_facts[name]
        else:
            self.node_facts[name] = fact

    def fold_forgiven(self, payer: EnvelopeKey, *, lent: bool) -> None:
        """Forget that a cap was lowered, because it covers all leases opened before."""
        assert payer.count("/") == 2, payer
        self.lowered.forgive(payer, lent=lent)

    def fold_told(self, told: BatchFacts) -> None:
        """Load everything that batches have stated about Budgets and nodes."""
        assert not self.budget_facts, "it is told once, and first of all"
        assert not self.node_facts, "it is told once, and first of all"
        self.budget_facts = dict(told.budgets)
        self.node_facts = dict(told.nodes)
        self.lowered = told.lowered

    def fold_caps(self) -> None:
        """Note which caps of GPU-hours are lower now than the ledger last stated."""
        assert all(key == budget.key for key, budget in self.budgets.items())
        assert self.head.seq >= 0, self.head
        for budget in self.budgets.values():
            self.lowered.note(budget, batch=self.head.seq)

    def fold_head(self, head: Head) -> None:
        """Move to the new head of the ledger."""
        assert head.seq >= self.head.seq, (head.seq, self.head.seq)
        assert head.instant >= self.head.instant, (head.instant, self.head.instant)
        assert head.epoch >= self.head.epoch, (head.epoch, self.head.epoch)
        self.head = head
