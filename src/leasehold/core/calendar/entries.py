"""The calendar: GPUs and money that are planned or held, but not leased.

The plans of waiting runs and the holds of activations are on the calendar. An *entry* is GPUs of
one node for some time, a *claim* is money of one envelope. The queue is walked in order, and each
plan is added as it is made. So each run finds the plans of the runs ahead and all holds, and must
leave free what they need. Open leases and other people's pods are in the World, not here.
"""

from collections.abc import Collection, Iterable, Sequence

from leasehold.core.calendar.releases import releases_on
from leasehold.core.facts import EnvelopeKey, Lease, Record, Uid
from leasehold.core.units import FOREVER, Instant, Millis
from leasehold.core.world.accounts import Claim
from leasehold.core.world.levels import Drop, fewest
from leasehold.core.world.world import World


def uid_beside(uid: Uid, group: int) -> Uid:
    """Return the calendar's key for a group of a sweep that is planned like a run of its own
    (G2)."""
    return f"{uid}#{group}"


def uid_of_run(uid: Uid) -> Uid:
    """Return the run's uid for a key of the calendar, also if it is the key of a group
    (`uid_beside`)."""
    return uid.partition("#")[0]


class Entry(Record):
    """GPUs of one node that a run will use from `start` to `end`."""

    uid: Uid
    node: str
    gpus: int
    start: Instant
    end: Instant = FOREVER


class Calendar:
    """All entries (GPUs) and claims (money) of plans and holds, by run, by node and by envelope."""

    def __init__(self) -> None:
        self._by_node: dict[str, list[Entry]] = {}
        self._of: dict[Uid, list[Entry]] = {}
        # sweep -> the uids of its groups that are planned alone (G2)
        self._beside: dict[Uid, dict[Uid, None]] = {}
        self._claims_by_payer: dict[EnvelopeKey, list[Claim]] = {}
        # run -> the longest limit of runs that may ignore its entries (Q10)
        self._passable_by: dict[Uid, Millis] = {}
        self.claims: dict[Uid, tuple[Claim, ...]] = {}
        self.changed: dict[str, None] = {}  # changed nodes; the reader clears it
        self.changes = 0  # number of changes
        self._ends: tuple[int, list[Instant]] = (-1, [])  # (value of `changes`, ends at that value)
        self.releases = 0  # number of changes that removed entries

    def enter(
        self,
        uid: Uid,
        entries: Iterable[Entry] = (),
        claims: Iterable[Claim] = (),
        *,
        passable_by: Millis | None = None,
    ) -> None:
        """Add entries and claims of a run.

        `passable_by`: other runs with at most this limit may ignore these entries (Q10).
        """
        self.changes += 1
        if (run := uid_of_run(uid)) != uid:
            self._beside.setdefault(run, {})[uid] = None
        for entry in entries:
            assert entry.gpus > 0, entry
            self._of.setdefault(uid, []).append(entry)
            self._by_node.setdefault(entry.node, []).append(entry)
            self.changed[entry.node] = None
        for claim in claims:
            self.claims[uid] = (*self.claims.get(uid, ()), claim)
            self._claims_by_payer.setdefault(claim.payer, []).append(claim)
        if passable_by is not None:
            self._passable_by[uid] = passable_by

    def forget(self, uid: Uid) -> None:
        """Remove all entries and claims of a run, because it started or lost its plan."""
        entries, claims = self._of.pop(uid, ()), self.claims.pop(uid, ())
        self._passable_by.pop(uid, None)
        for entry in entries:
            self._by_node[entry.node].remove(entry)
            self.changed[entry.node] = None
        for claim in claims:
            self._claims_by_payer[claim.payer].remove(claim)
        if entries or claims:
            self.changes += 1
            self.releases += 1

    def has(self, uid: Uid) -> bool:
        return bool(self._of.get(uid) or self.claims.get(uid))

    @property
    def uids(self) -> set[Uid]:
        return {uid for uid in {*self._of, *self.claims} if self.has(uid)}

    def only(self, uids: Iterable[Uid]) -> "Calendar":
        """Return a new calendar with the entries and claims of these runs only, in the same
        order."""
        wanted, found = set(uids), Calendar()
        for uid in dict.fromkeys((*self._of, *self.claims)):
            if uid in wanted:
                found.enter(
                    uid,
                    self._of.get(uid, ()),
                    self.claims.get(uid, ()),
                    passable_by=self._passable_by.get(uid),
                )
        return found

    def lines_of(self, uid: Uid) -> tuple[tuple[Entry, ...], tuple[Claim, ...]]:
        """Return all entries and claims of a run, including its groups that are planned alone."""
        uids = (uid, *self._beside.get(uid, ()))
        entries = tuple(entry for each in uids for entry in self._of.get(each, ()))
        return entries, tuple(claim for each in uids for claim in self.claims.get(each, ()))

    def entries_of(self, uid: Uid) -> tuple[Entry, ...]:
        return tuple(self._of.get(uid, ()))

    def entries_on(self, node: str, uid: Uid, limit: Millis = FOREVER) -> list[Entry]:
        """Return the entries on a node that the run `uid` with this limit must respect.

        Leaves out the run's own entries, and entries that a run with such a limit may ignore (Q10).
        """
        return [
            entry
            for entry in self._by_node.get(node, ())
            if entry.uid != uid and limit > self._passable_by.get(entry.uid, -1)
        ]

    def on_node(self, node: str) -> Sequence[Entry]:
        """Return all entries on a node."""
        return self._by_node.get(node, ())

    def nodes(self) -> list[str]:
        """Return the names of nodes with an entry, sorted."""
        return sorted(name for name, entries in self._by_node.items() if entries)

    @property
    def ends(self) -> list[Instant]:
        """Return the known ends of entries and claims, in order."""
        if self._ends[0] != self.changes:
            ends = {entry.end for entries in self._of.values() for entry in entries}
            ends.update(claim.end for claims in self.claims.values() for claim in claims)
            self._ends = self.changes, sorted(at for at in ends if at < FOREVER)
        return self._ends[1]

    def claims_on(self, payer: EnvelopeKey) -> Sequence[Claim]:
        """Return all claims on an envelope."""
        return self._claims_by_payer.get(payer, ())

    def last_start(self, payer: EnvelopeKey) -> Instant:
        """Return the latest start of any claim on an envelope; 0 if there is none."""
        return max((claim.start for claim in self._claims_by_payer.get(payer, ())), default=0)

    def respect(self, world: World, uid: Uid, limit: Millis = FOREVER) -> None:
        """Make the accounts count the money that other runs claim as used, as the run `uid` must
        see it.

        The run's own claims do not count, nor claims that a run with this limit may ignore (Q10).
        The caller must hold an open what-if.
        """
        passed = (each for each, longest in self._passable_by.items() if limit <= longest)
        world.accounts.respect(self._claims_by_payer, except_for=frozenset((uid, *passed)))

    def apply(
        self,
        world: World,
        uid: Uid,
        *,
        limit: Millis,
        start: Instant,
        end: Instant,
        gone: Collection[str] = (),
    ) -> "Overlay":
        """Take the GPUs and the money that the calendar keeps from a run off the fleet and the
        accounts.

        The run would run from `start` to `end`.
        `gone`: leases whose GPUs the caller has already freed.
        Returns an overlay. It keeps the GPU counts right if the caller ends more leases.
        The caller must hold an open what-if.
        """
        self.respect(world, uid, limit)
        names = self._by_node.keys()
        return Overlay(world, self, names, uid=uid, limit=limit, start=start, end=end, gone=gone)


class Overlay:
    """Counts how many GPUs of each node the calendar keeps from one run, while a what-if ends
    leases.

    A plan that begins later counts on leases that end by themselves before it. If the what-if ends
    such a lease early, the plan needs its GPUs all the same, so the kept GPUs are counted again.

    Example: a node of 8 GPUs has a lease of 6 until 12:00, and a plan for 8 from 12:00 on. A run
    without a limit finds 2 GPUs free, and both are kept. If the lease is ended now, 8 are free and
    all 8 are kept: the run gains nothing.
    """

    def __init__(
        self,
        world: World,
        calendar: Calendar,
        names: Iterable[str],
        *,
        uid: Uid,
        limit: Millis,
        start: Instant,
        end: Instant,
        gone: Collection[str],
    ) -> None:
        self._world = world
        self._calendar = calendar
        self._uid, self._limit = uid, limit
        self._start, self._end = start, end
        self.before = frozenset(gone)
        self._gone = set(gone)
        self._kept: dict[str, int] = {}
        nodes = world.fleet.nodes
        for name in names:
            state = nodes.get(name)
            if state is not None and state.free:
                self.recount(name)

    def end(self, lease: Lease) -> None:
        """End the lease in the what-if, and count again the GPUs that are kept on its node."""
        self._world.fleet.give(lease)
        self._gone.add(lease.name)
        self._world.what_if.note(lambda: self._gone.discard(lease.name))
        self.recount(lease.node)

    def restore(self, lease: Lease) -> None:
        """Undo `end` in the same what-if."""
        self._world.fleet.take(lease)
        self._gone.discard(lease.name)
        self._world.what_if.note(lambda: self._gone.add(lease.name))
        self.recount(lease.node)

    def gain(self, lease: Lease) -> int:
        """Return how many more GPUs the run would find on the lease's node if this lease ended."""
        state = self._world.fleet.nodes[lease.node]
        before = state.unclipped_free()
        with self._world.what_if.opened():
            self.end(lease)
            after = state.unclipped_free()
        return after - before

    def recount(self, name: str) -> None:
        """Count again how many GPUs of a node the calendar keeps from the run, and update the
        fleet."""
        if name not in self._world.fleet.nodes:
            return
        before, now = self._kept.get(name, 0), self._count_kept(name)
        if now != before:
            self._world.fleet.plan(name, now - before)
            self._kept[name] = now
            self._world.what_if.note(lambda: self._kept.__setitem__(name, before))

    def _count_kept(self, name: str) -> int:
        entries = self._calendar.entries_on(name, self._uid, self._limit)
        return kept_gpus(
            self._world, name, entries, start=self._start, end=self._end, gone=self._gone
        )


def kept_gpus(
    world: World,
    name: str,
    entries: Iterable[Entry],
    *,
    start: Instant,
    end: Instant,
    gone: Collection[str],
) -> int:
    """Return how many GPUs of a node must stay free at `start`, so that `entries` find enough
    later.

    Only entries that overlap [`start`, `end`) count. Leases that end in between free GPUs for them.
    Example: 4 GPUs come free at 10:00, and a plan needs 6 from 11:00 on: 2 GPUs are kept.

    `gone`: leases whose GPUs the caller has already freed.
    """
    drops: list[Drop] = []
    is_later = False
    for entry in entries:
        if start < entry.end and entry.start < end:
            drops += (entry.start, entry.gpus), (entry.end, -entry.gpus)
            is_later = is_later or entry.start > start
    if not drops:
        return 0
    if is_later:
        drops += [(at, -1) for at in releases_on(world, name, after=start, gone=gone).values()]
    return max(0, -fewest(0, drops, start=start, stop=end))
