"""One turn: collects what is decided into batches, and folds it into the World at once.

The controllers write through a Turn only: start, mark, close, announce, publish, reserve. Each call
changes the World immediately, so that the next decision of the same turn sees it. The shell then
checks the invariants and commits `batches`; only after that does anything become visible. If the
commit fails, the shell discards this World and rebuilds it.
"""

from collections.abc import Callable
from itertools import pairwise

from msgspec.structs import replace

from leasehold.control.reasons import Reason
from leasehold.core.calendar.entries import Calendar
from leasehold.core.facts import (
    Cause,
    Closed,
    Closure,
    ClosureReason,
    Ending,
    Lease,
    Opened,
    Record,
    Relation,
    Role,
    Run,
    Uid,
)
from leasehold.core.ledger import lottery
from leasehold.core.ledger.batch import Batch, Closing, NodeFact, closing_of, resolution_digest
from leasehold.core.ledger.chain import canonical
from leasehold.core.objects.lease import lease_name, lease_spec, pod_name
from leasehold.core.placement.bind import bind, deal_slots
from leasehold.core.requests import PlacementRequest
from leasehold.core.reservations import Reservation
from leasehold.core.resolutions import Resolution
from leasehold.core.units import FOREVER, Instant, Millis
from leasehold.core.verdicts import Admitted, Segment
from leasehold.core.world.use_of_time import saved_until, starting_until
from leasehold.core.world.world import Overdraft, World

_ENTRY_BYTES = 220  # a generous size of an ending, closed or announced entry
_HEAD_BYTES = 512  # size of an empty batch
_LEASE_BYTES_MAX = 4096  # size of a lease with the longest possible names
_MARGIN_BYTES = 1024  # size of a batch besides its entries


def _lease_bytes(lease: Lease) -> int:
    """Return an upper bound of the bytes that a lease takes in a batch."""
    return len(canonical(lease_spec(lease))) + 2 * len(lease.name) + 96


class Notice(Record):
    """A message to people, written as an event on the object that it is about."""

    kind: str
    subject: str  # namespace/name
    reason: Reason
    message: str
    batch: int


class _Draft:
    """A batch that is still being written."""

    def __init__(self, seq: int) -> None:
        self.seq = seq
        self.size = _HEAD_BYTES
        self.budgets: dict[str, bytes | None] = {}
        self.nodes: dict[str, NodeFact] = {}
        self.announced: list[tuple[str, str]] = []
        self.opened: list[Lease] = []
        self.ending: list[tuple[str, str, Instant]] = []
        self.closed: list[Closing] = []
        self.resolutions: list[tuple[str, str]] = []

    def finished(self, epoch: int, instant: Instant) -> Batch:
        """Return the batch as it would be committed now."""
        return Batch(
            seq=self.seq,
            epoch=epoch,
            instant=instant,
            facts_budgets=tuple(sorted(self.budgets.items())),
            facts_nodes=tuple(fact for _, fact in sorted(self.nodes.items())),
            announced=tuple(self.announced),
            opened=tuple(self.opened),
            ending=tuple(self.ending),
            closed=tuple(self.closed),
            resolutions=tuple(self.resolutions),
        )


class Turn:
    """The decisions of one turn, which controllers add one after the other."""

    def __init__(
        self,
        world: World,
        *,
        now: Instant,
        key: bytes,
        time_trusted: bool,
        is_strict: bool = False,
    ) -> None:
        """Begin a turn.

        `is_strict`: also consider runs whose plan stands, and check that the result is the same
        (Q7).
        """
        assert now >= world.head.instant
        self.world = world
        self.now = now
        self.key = key
        self.time_trusted = time_trusted  # false: make no decision that depends on time alone
        self.is_strict = is_strict
        self.calendar = Calendar()
        self.notices: list[Notice] = []
        self.again = False  # another turn must follow at once, because decisions depend on this one
        self.opened = 0  # number of times that leases were opened, e.g. one gang
        self.released = 0  # number of leases that were closed or marked as ending
        self.marked = 0  # number of leases that were marked as ending
        self.wake_at: Instant = FOREVER
        self.touched: dict[Uid, None] = {}
        self._longest: dict[str, tuple[str, str, str]] = {}
        self.reservations: dict[str, Reservation] = {}  # written this turn
        self.has_walked = False  # the queue was walked to its end, so the calendar is complete
        self.resolutions: list[Resolution] = []
        self.quarantined: frozenset[Uid] = frozenset()
        # the quarantined runs that are not even tended
        self.left_alone: frozenset[Uid] = frozenset()
        self._drafts = [_Draft(world.head.seq + 1)]
        self._sealed: list[Batch] | None = None

    @property
    def about(self) -> Uid:
        """Return the run about which a decision is being made.

        If the decision fails, the error names this run. Steps count for it.
        """
        return self.world.steps.about

    @about.setter
    def about(self, uid: Uid) -> None:
        self.world.steps.begin(uid)

    @property
    def batches(self) -> list[Batch]:
        """Return the batches to commit, in this order, without empty ones."""
        return self._written() if self._sealed is None else self._sealed

    @property
    def stated_budgets(self) -> list[str]:
        """Return the existing Budgets whose specs are written to the ledger in this turn."""
        found = {key for draft in self._drafts for key, spec in draft.budgets.items() if spec}
        return sorted(found & self.world.budgets.keys())

    def seal(self) -> None:
        """End the turn: from now on its batches do not change."""
        assert self._sealed is None, "a turn is sealed once"
        self._sealed = self._written()
        assert all(one.seq + 1 == two.seq for one, two in pairwise(self._sealed)), "no gaps"

    def _written(self) -> list[Batch]:
        drafts = (draft.finished(self.world.head.epoch, self.now) for draft in self._drafts)
        return [batch for batch in drafts if not batch.is_empty]

    @property
    def in_first_batch(self) -> bool:
        """Return whether the turn is still writing its first batch.

        A Resolution contains the digest of the batch before its own. That digest is known only for
        the first batch of a turn.
        """
        return len(self._drafts) == 1

    @property
    def seq(self) -> int:
        return self._drafts[-1].seq

    def wake(self, at: Instant) -> None:
        """Request a turn at `at`, if that is later than now."""
        assert at >= 0, at
        if at > self.now:
            self.wake_at = min(self.wake_at, at)

    def tell(self, kind: str, subject: str, reason: Reason, message: str) -> None:
        """Report something about an object to people. The notice is written after the commit."""
        assert subject, reason
        assert message, reason
        self.notices.append(
            Notice(kind=kind, subject=subject, reason=reason, message=message, batch=self.seq)
        )

    # Leases.

    def start(
        self, run: Run, plan: Admitted, *, attempts: dict[int, int], reason: Opened
    ) -> list[Lease] | int:
        """Open all leases of a plan in one batch and return them (B1).

        If no batch can hold them, open none and return their size in bytes.
        `attempts`: the attempt number of each group.
        """
        assert {each.group for each in plan.packed.places} == set(attempts), run.key
        assert all(number > 0 for number in attempts.values()), run.key
        draft = self._drafts[-1]
        leases = self.leases_of(run, plan, attempts, reason=reason)
        size = len(leases) * _lease_bytes(leases[0])
        limit = self.world.policy.batch_bytes_max
        if self.is_too_large(size):
            return size
        facts = self._fact_bytes(leases)
        if draft.size + size + facts > limit:
            if facts:  # the Budgets and nodes of a gang may be stated in the batch before it
                self._record_all_facts(leases)
            self._next_draft()
            return self.start(run, plan, attempts=attempts, reason=reason)
        self._open(leases, size)
        return leases

    def leases_of(
        self, run: Run, plan: Admitted, attempts: dict[int, int], *, reason: Opened = Opened.START
    ) -> list[Lease]:
        """Return the leases that a plan would open in the batch that is being written."""
        draft, fleet = self._drafts[-1], self.world.fleet
        return bind(
            run,
            plan,
            deal_slots(fleet, plan.packed.places),
            fleet=fleet,
            attempts=attempts,
            reason=reason,
            batch=draft.seq,
            first_index=len(draft.opened),
            now=self.now,
        )

    def bytes_too_many(self, run: Run, plan: Admitted, attempts: dict[int, int]) -> int | None:
        """Return the size of the plan's leases in bytes if no batch can hold them, otherwise None.

        An upper bound is tried first, because building the leases of every plan is slow.
        """
        segments = sum(len(covered.segments) for _, covered in plan.covered)
        if not self.is_too_large((len(plan.packed.places) + segments) * _LEASE_BYTES_MAX):
            return None
        leases = self.leases_of(run, plan, attempts)
        size = len(leases) * _lease_bytes(leases[0])
        return size if self.is_too_large(size) else None

    def is_too_large(self, size: int) -> bool:
        """Return whether no batch can hold a gang whose leases need `size` bytes."""
        assert size > 0, size
        return size + _MARGIN_BYTES > self.world.policy.batch_bytes_max

    def gang_bytes_at_most(self, run: Run, placement: PlacementRequest) -> int:
        """Return an upper bound on the bytes of a gang's leases, for all nodes and payers."""
        pods = (placement.pods + placement.spares) * len(placement.groups)
        node, payer, owner = self._longest_names(placement.flavor)
        sample = Lease(
            name=lease_name(run.name, self.seq, pods),
            owner=run.spec.owner,
            namespace=run.namespace,
            run=run.name,
            uid=run.uid,
            attempt=1,
            group=len(placement.groups),
            index=placement.pods,
            node=node,
            slots=tuple(range(placement.pod_gpus)),
            role=Role.ACTIVE,
            start=self.now,
            payer=payer,
            payer_owner=owner,
            relation=Relation.BORROWED,
            reason=Opened.START,
            batch=self.seq,
        )
        return pods * _lease_bytes(sample)

    def _longest_names(self, flavor: str) -> tuple[str, str, str]:
        """Return the longest names of a node, of an envelope of the flavor, and of its owner.

        They are found once per turn: there may be thousands of nodes and envelopes.
        """
        known = self._longest.get(flavor)
        if known is None:
            payers = [each for each in self.world.envelopes.values() if each.flavor == flavor]
            known = self._longest[flavor] = (
                max(self.world.fleet.nodes, key=len, default=""),
                max((each.key for each in payers), key=len, default="//"),
                max((each.owner for each in payers), key=len, default=""),
            )
        return known

    def _fact_bytes(self, leases: list[Lease]) -> int:
        """Return the bytes that must be added to the batch for these leases to state their Budgets
        and nodes.

        Budgets and nodes that the ledger already has need none.
        """
        world = self.world
        # Look up each key: a set difference would walk all facts that the ledger has.
        budgets = {lease.payer.rpartition("/")[0] for lease in leases}
        payers = [key for key in budgets if key not in world.budget_facts]
        nodes = {lease.node for lease in leases if lease.node not in world.node_facts}
        specs = sum(len(world.budgets[key].wire_spec) for key in payers if key in world.budgets)
        return specs + (len(payers) + len(nodes)) * _ENTRY_BYTES

    def _record_all_facts(self, leases: list[Lease]) -> None:
        """Write to the batch the Budgets and nodes of these leases, except those that the ledger
        has."""
        for lease in leases:
            self._record_facts(lease)

    def _open(self, leases: list[Lease], size: int) -> None:
        """Add the leases to the current batch, which must have room for `size` more bytes."""
        draft = self._drafts[-1]
        draft.size += size
        self.opened += 1
        # Move the run to the end of `touched`: pods are created in the order of starts.
        self.touched.pop(leases[0].uid, None)
        for lease in leases:
            self._record_facts(lease)
            assert self._drafts[-1] is draft, "a gang and what it rests on have room together"
            self.world.fold_open(lease)
            draft.opened.append(lease)
            self.touched[lease.uid] = None

    def open_swap(self, lost: Lease, spare: Lease, index: int) -> Lease:
        """Open an active lease on the slots of a spare, for the pod that was lost (S2).

        The lease has the spare's payer and the lost pod's rank.
        """
        assert spare.role is Role.SPARE, spare.name
        assert (lost.uid, lost.group) == (spare.uid, spare.group), spare.name
        self._make_room(1)
        draft = self._drafts[-1]
        lease = replace(
            spare,
            name=lease_name(spare.run, draft.seq, len(draft.opened)),
            index=index,
            role=Role.ACTIVE,
            start=self.now,
            reason=Opened.SWAP,
            batch=draft.seq,
            attempt=lost.attempt,
            pod=pod_name(spare.run, draft.seq, lost.group, index),
            ending=None,
            closed=None,
        )
        self._open([lease], _ENTRY_BYTES * 4)
        return lease

    def refinance(self, old: Lease, segments: tuple[Segment, ...]) -> None:
        """Replace the payer of a lease: close it and open one lease for each segment (O2)."""
        assert sum(each.gpus for each in segments) == old.gpus, old.name
        for each in segments:
            self._record_unknown_budget(each.envelope.rpartition("/")[0])
        self._make_room(2 + 4 * len(segments))  # closing and opening belong in one batch
        draft = self._drafts[-1]
        self.close(old.name, end=self.now, why=Closed.REFINANCED)
        slots = list(old.slots)
        for each in segments:
            mine, slots = tuple(slots[: each.gpus]), slots[each.gpus :]
            lease = replace(
                old,
                name=lease_name(old.run, draft.seq, len(draft.opened)),
                slots=mine,
                start=self.now,
                payer=each.envelope,
                payer_owner=each.owner,
                relation=each.relation,
                reason=Opened.REFINANCE,
                batch=draft.seq,
            )
            self._open([lease], _ENTRY_BYTES * 4)
        assert not slots, old.name

    def mark(self, lease: Lease, why: ClosureReason, *, grace: Millis) -> None:
        """Mark a lease as ending: its pod gets the stop signal now and is killed after `grace`.

        `grace` is limited to `gracePeriod.max`, because that setting may be newer than the Run.
        """
        assert grace >= 0, lease.name
        assert self.world.leases[lease.name] is lease, "it is the newest that is known of it"
        grace = min(grace, self.world.policy.grace_max)
        self._make_room(1)
        self._leave_opening_batch(lease)
        draft = self._drafts[-1]
        deadline = self.now + (0 if lease.role is Role.SPARE else grace)
        ending = Ending(why=why, deadline=deadline, batch=draft.seq, at=self.now)
        self.released += 1
        self.marked += 1
        self.world.fold_ending(lease.name, ending)
        draft.ending.append((lease.name, str(why), deadline))
        draft.size += _ENTRY_BYTES
        self.touched[lease.uid] = None

    def close(
        self, name: str, *, end: Instant, why: Closed | ClosureReason, cause: Cause | None = None
    ) -> Lease:
        """Close a lease at `end`, which is limited to [its start, now].

        Returns the lease as it was before.
        """
        lease = self.world.leases[name]
        assert lease.is_open, name
        assert lease.ending is None or lease.ending.why == (
            why if isinstance(why, ClosureReason) else ClosureReason(reason=why)
        ), "a closure quotes the mark"
        self._make_room(1)
        self._leave_opening_batch(lease)
        draft = self._drafts[-1]
        end = max(lease.start, min(end, self.now))
        self.released += 1
        reason = why if isinstance(why, ClosureReason) else ClosureReason(reason=why)
        began = starting_until(self.world, lease)
        began = None if began is None or end <= lease.start else min(began, end)
        saved = saved_until(self.world, lease, reason.reason, end)
        closure = Closure(
            why=reason, at=end, cause=cause, began=began, saved=saved, batch=draft.seq
        )
        self.world.fold_close(name, closure)
        draft.closed.append(closing_of(name, closure))
        draft.size += _ENTRY_BYTES
        self.touched[lease.uid] = None
        return lease

    # Announcements, resolutions, facts.

    def announcing_batch(self, is_taken: Callable[[int], bool]) -> int:
        """Return the number of the batch for the next announcement.

        `is_taken`: returns whether the announcement's name already exists for a batch. If it exists
        for the current one, a new batch is begun.
        """
        self._make_room(1)
        if is_taken(self.seq):
            self._next_draft()
        return self.seq

    def announce(self, subject: str) -> str:
        """Announce a subject that a Resolution may name later, and return the commitment.

        The commitment fixes the nonce of a possible lottery before anyone knows its seed.
        """
        assert subject.count("/") in (1, 2), subject
        self._make_room(1)
        draft = self._drafts[-1]
        commitment = lottery.commitment(lottery.nonce(self.key, subject, draft.seq))
        draft.announced.append((subject, commitment))
        draft.size += _ENTRY_BYTES
        assert draft.seq > self.world.head.seq, draft.seq
        return commitment

    def announce_overdraft(self, subject: str) -> Overdraft:
        """Announce an overdraft (O3) and return it; its grace begins now."""
        assert subject.count("/") == 2, subject
        commitment = self.announce(subject)
        overdraft = Overdraft(
            subject=subject, since=self.now, batch=self.seq, commitment=commitment
        )
        assert overdraft.batch == self._drafts[-1].seq, overdraft.batch
        self.world.fold_overdraft(overdraft)
        return overdraft

    def publish(self, resolution: Resolution) -> None:
        """Record a Resolution, before any of its victims is marked (A3)."""
        assert resolution.batch == self.seq, resolution.name
        assert resolution.name not in self.world.resolutions, resolution.name
        draft = self._drafts[-1]
        draft.resolutions.append((resolution.name, resolution_digest(resolution)))
        draft.size += _ENTRY_BYTES
        self.world.fold_resolution(resolution)
        self.resolutions.append(resolution)

    def reserve(self, reservation: Reservation) -> None:
        """Write a reservation. It must have been announced before."""
        assert reservation.commitment, "it was announced"
        assert reservation.batch <= self.seq, reservation.subject
        self.world.fold_reservation(reservation)
        self.reservations[reservation.subject] = reservation
        self.touched[reservation.uid] = None

    def state_changed_facts(self) -> None:
        """Write the Budgets and nodes that have changed or gone since the ledger last stated
        them."""
        world = self.world
        for key, stated in sorted(world.budget_facts.items()):
            budget = world.budgets.get(key)
            if budget is None:
                self._make_room(1)
                self._drafts[-1].budgets[key] = None
                world.fold_budget_fact(key, None)
            elif budget.wire_spec != stated:
                self._record_budget(key)
        for name, fact in sorted(world.node_facts.items()):
            state = world.fleet.nodes.get(name)
            if state is None:
                self._make_room(1)
                self._drafts[-1].nodes[name] = NodeFact(name=name, gone=True)
                world.fold_node_fact(name, None)
            elif (state.node.gpus, state.node.flavor, state.node.domain) != fact:
                self._record_node(name)

    def _record_facts(self, lease: Lease) -> None:
        """Write to the batch the lease's Budget and node, unless the ledger has them."""
        self._record_unknown_budget(lease.payer.rpartition("/")[0])
        if lease.node not in self.world.node_facts:
            self._record_node(lease.node)

    def _record_unknown_budget(self, key: str) -> None:
        """Write the Budget to the batch if the Budget exists and the ledger does not have it."""
        # A spare may become active after its Budget was deleted; there is nothing to write then.
        if key not in self.world.budget_facts and key in self.world.budgets:
            self._record_budget(key)

    def _record_budget(self, key: str) -> None:
        """Write the Budget's present spec to the batch."""
        spec = self.world.budgets[key].wire_spec
        self._make_room(1, len(spec))
        draft = self._drafts[-1]
        draft.budgets[key] = spec
        self.world.fold_budget_fact(key, spec)
        draft.size += len(spec) + _ENTRY_BYTES

    def _record_node(self, name: str) -> None:
        """Write the node's present GPUs, flavor and domain to the batch."""
        self._make_room(1)
        draft = self._drafts[-1]
        node = self.world.fleet.nodes[name].node
        draft.nodes[name] = NodeFact(
            name=name, gpus=node.gpus, flavor=node.flavor, domain=node.domain
        )
        self.world.fold_node_fact(name, (node.gpus, node.flavor, node.domain))
        draft.size += _ENTRY_BYTES

    def _make_room(self, entries: int, more: int = 0) -> None:
        """Begin a new batch if the current one has no room for this many entries and `more`
        bytes."""
        assert self._sealed is None, "nothing is decided after the end of a turn"
        assert entries > 0
        limit = self.world.policy.batch_bytes_max
        used = self._drafts[-1].size
        # Leave no empty batch behind: it is not written, and the chain would have a gap.
        if used > _HEAD_BYTES and used + entries * _ENTRY_BYTES + more > limit:
            self._next_draft()

    def _leave_opening_batch(self, lease: Lease) -> None:
        """Begin a new batch if the current one opens the lease.

        Within a batch, a reader folds endings and closings before openings.
        """
        if lease.batch == self.seq:
            self._next_draft()

    def _next_draft(self) -> None:
        self._drafts.append(_Draft(self._drafts[-1].seq + 1))
