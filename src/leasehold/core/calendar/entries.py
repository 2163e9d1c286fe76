"""The calendar: GPUs and money that are spoken for but not leased.

Its entries are the holds of activations and the plans of waiting runs. A pass walks the queue in
order and enters each plan as it is made, so a run respects the entries that it finds: those of the
runs ahead, and all holds. Open leases and other people's pods are part of the World.
"""

from collections.abc import Collection, Iterable, Sequence

from leasehold.core.calendar.releases import releases_on
from leasehold.core.facts import EnvelopeKey, Lease, Record, Uid
from leasehold.core.units import FOREVER, Instant, Millis
from leasehold.core.world.accounts import Claim
from leasehold.core.world.levels import Drop, fewest
from leasehold.core.world.world import World


def uid_beside(uid: Uid, group: int) -> Uid:
    """Whose plan it is if a group of a sweep is planned like a run of its own (G2)."""
    return f"{uid}#{group}"


def uid_of_run(uid: Uid) -> Uid:
    """The run that an entry belongs to."""
    return uid.partition("#")[0]


class Entry(Record):
    """GPUs of one node, from `start` to `end`."""

    uid: Uid
    node: str
    gpus: int
    start: Instant
    end: Instant = FOREVER


class Calendar:
    """Entries by run, by node and by envelope."""

    def __init__(self) -> None:
        self._by_node: dict[str, list[Entry]] = {}
        self._of: dict[Uid, list[Entry]] = {}
        self._beside: dict[Uid, dict[Uid, None]] = {}  # groups of a sweep that are planned alone
        self._claims_by_payer: dict[EnvelopeKey, list[Claim]] = {}
        self._passable_by: dict[Uid, Millis] = {}  # runs with at most this limit may pass (Q10)
        self.claims: dict[Uid, tuple[Claim, ...]] = {}
        self.changed: dict[str, None] = {}  # nodes, since somebody last looked
        self.changes = 0
        self._ends: tuple[int, list[Instant]] = (-1, [])  # when entries end, as of `changes`
        self.releases = 0  # those changes that leave others more than before

    def enter(
        self,
        uid: Uid,
        entries: Iterable[Entry] = (),
        claims: Iterable[Claim] = (),
        *,
        passable_by: Millis | None = None,
    ) -> None:
        """Add to what the run has here."""
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
        """The run has started, or has no plan any more."""
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
        """The entries of these runs, in the order of this calendar."""
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
        """Return all that a run has here, with the groups of a sweep that are planned alone."""
        uids = (uid, *self._beside.get(uid, ()))
        entries = tuple(entry for each in uids for entry in self._of.get(each, ()))
        return entries, tuple(claim for each in uids for claim in self.claims.get(each, ()))

    def entries_of(self, uid: Uid) -> tuple[Entry, ...]:
        return tuple(self._of.get(uid, ()))

    def entries_on(self, node: str, uid: Uid, limit: Millis = FOREVER) -> list[Entry]:
        """What a run of this span must respect on a node."""
        return [
            entry
            for entry in self._by_node.get(node, ())
            if entry.uid != uid and limit > self._passable_by.get(entry.uid, -1)
        ]

    def on_node(self, node: str) -> Sequence[Entry]:
        """Return all entries on a node."""
        return self._by_node.get(node, ())

    def nodes(self) -> list[str]:
        """Nodes with an entry."""
        return sorted(name for name, entries in self._by_node.items() if entries)

    @property
    def ends(self) -> list[Instant]:
        """Return the known ends of entries, in order."""
        if self._ends[0] != self.changes:
            ends = {entry.end for entries in self._of.values() for entry in entries}
            ends.update(claim.end for claims in self.claims.values() for claim in claims)
            self._ends = self.changes, sorted(at for at in ends if at < FOREVER)
        return self._ends[1]

    def claims_on(self, payer: EnvelopeKey) -> Sequence[Claim]:
        """Return all entries that an envelope pays for."""
        return self._claims_by_payer.get(payer, ())

    def last_start(self, payer: EnvelopeKey) -> Instant:
        """When the last entry begins that this envelope pays for; 0 if there is none."""
        return max((claim.start for claim in self._claims_by_payer.get(payer, ())), default=0)

    def respect(self, world: World, uid: Uid, limit: Millis = FOREVER) -> None:
        """Count the money of the entries that a run respects.

        The caller must hold an open what-if."""
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
        """Take off the fleet and the accounts what a run must respect that would run from `start`
        to `end`. `gone`: leases that the caller has given back.

        The caller must hold an open what-if."""
        self.respect(world, uid, limit)
        names = self._by_node.keys()
        return Overlay(world, self, names, uid=uid, limit=limit, start=start, end=end, gone=gone)


class Overlay:
    """What entries keep of each node from one run, also while a what-if ends leases there.

    An entry that begins later counts on GPUs that come free by themselves until then. If a what-if
    ends such a lease early, what is kept is counted again."""

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
        """In the what-if, the lease is over."""
        self._world.fleet.give(lease)
        self._gone.add(lease.name)
        self._world.what_if.note(lambda: self._gone.discard(lease.name))
        self.recount(lease.node)

    def restore(self, lease: Lease) -> None:
        """In the what-if, the lease goes on after all."""
        self._world.fleet.take(lease)
        self._gone.discard(lease.name)
        self._world.what_if.note(lambda: self._gone.add(lease.name))
        self.recount(lease.node)

    def gain(self, lease: Lease) -> int:
        """How many more GPUs there would be if this lease alone ended."""
        state = self._world.fleet.nodes[lease.node]
        before = state.unclipped_free()
        with self._world.what_if.opened():
            self.end(lease)
            after = state.unclipped_free()
        return after - before

    def recount(self, name: str) -> None:
        """Count what is kept of a node."""
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
    """How many of the GPUs that are free at `start` the entries of a node would miss by `end`."""
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
