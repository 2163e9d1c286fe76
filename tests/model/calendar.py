"""The calendar: all present and planned use, and what it leaves free for one run.

Entries are open leases until their known end, foreign pods, holds of activations, and the plans of
the runs ahead. A site or a hold may be on GPUs that leases still use, so the free GPUs of a node
are never counted below zero.
"""

from dataclasses import dataclass, field

from tests.model.facts import Envelope, Lease, Node, Placement, Run, Segment, World
from tests.model.story import FOREVER, HOUR


@dataclass
class Entry:
    """A hold or a plan: GPUs of nodes and money of envelopes, from `start` to `end`."""

    holder: str
    start: int
    end: int
    nodes: dict[str, int] = field(default_factory=dict)
    segments: list[Segment] = field(default_factory=list)
    hours: dict[str, int] = field(default_factory=dict)
    lent_hours: dict[str, int] = field(default_factory=dict)
    is_hold: bool = False
    passable_by: int = -1  # Q10: runs with at most this limit do not respect it

    def gpus_of(self, envelopes: set[str], *, lent: bool) -> int:
        return sum(
            gpus
            for name, gpus, relation in self.segments
            if name in envelopes and (relation == "Borrowed" or not lent)
        )


def end_of(run: Run, start: int) -> int:
    """Return the known end of a run that starts at `start`."""
    return FOREVER if run.limit is None else start + run.limit


def make_entry(
    world: World, run: Run, start: int, nodes: dict[str, int], segments: list[Segment]
) -> Entry:
    entry = Entry(run.key, start, end_of(run, start), nodes, segments)
    until = entry.end if run.limit is not None else start + world.config["accounting.horizon"]
    for name, gpus, relation in segments:
        envelope = world.envelope(name)
        if envelope is not None:
            hours = gpus * max(0, min(until, envelope.end) - start)
            entry.hours[name] = entry.hours.get(name, 0) + hours
            if relation == "Borrowed":
                entry.lent_hours[name] = entry.lent_hours.get(name, 0) + hours
    return entry


def plan_entry(world: World, run: Run, placement: Placement, start: int) -> Entry:
    nodes = placement.gpus_by_node(run.pod_gpus)
    return make_entry(world, run, start, nodes, placement.segments())


def holds(world: World) -> list[Entry]:
    """Return the holds of all activations, without what the beneficiary has already leased.

    A4: a hold ends with the run's limit, counted from the last victim's deadline, or from now.
    """
    found = []
    for run in world.runs.values():
        if run.hold is None:
            continue
        entry = plan_entry(world, run, run.hold.placement, world.now)
        last = max((world.leases[n].deadline for n in run.hold.victims), default=world.now)
        entry.is_hold, entry.end = True, end_of(run, max(last, world.now))
        groups = run.hold.placement.groups()
        for lease in [x for x in world.leases_of(run) if x.group in groups]:
            entry.nodes[lease.node] = max(0, entry.nodes.get(lease.node, 0) - lease.gpus)
            entry.segments = _less(entry.segments, lease)
        found.append(entry)
    return found


def _less(segments: list[Segment], lease: Lease) -> list[Segment]:
    left, gpus = [], lease.gpus
    for name, count, relation in segments:
        taken = min(count, gpus) if name == lease.payer else 0
        gpus -= taken
        left.append((name, count - taken, relation))
    return left


class Calendar:
    """What is free for one run, which respects the plans `ahead` of it.

    Leases in `without` are left out. With `ending_is_gone`, leases that are ending are left out
    too, unless they are late. `as_group` is a group of a sweep that is planned on its own.
    """

    def __init__(
        self,
        world: World,
        run: Run,
        ahead: list[Entry],
        *,
        without: frozenset[int] = frozenset(),
        ending_is_gone: bool = False,
        as_group: int | None = None,
    ) -> None:
        self.world = world
        self.run = run
        mine = run.key if as_group is None else f"{run.key}#{as_group}"
        entries = [e for e in holds(world) + ahead if e.holder != mine]
        self.entries = [e for e in entries if run.limit is None or run.limit > e.passable_by]
        self.ends = {
            lease.number: -FOREVER
            if lease.number in without
            or (ending_is_gone and lease.ending and lease.deadline > world.now)
            else world.known_end(lease)
            for lease in world.open_leases()
        }
        self.leases = [x for x in world.open_leases() if self.ends[x.number] > -FOREVER]

    def until(self, at: int) -> int:
        """Q8: return until when a run that starts at `at` blocks others: its limit and grace."""
        return (
            end_of(self.run, at)
            if self.run.limit is None
            else (at + self.run.limit + min(self.run.grace, HOUR))
        )

    def instants(self) -> list[int]:
        """Q4: return the instants at which GPUs or money become free or a window opens."""
        world = self.world
        found = {self.ends[x.number] for x in self.leases} | {e.end for e in self.entries}
        found |= {e.start for e in world.envelopes if e.flavor == self.run.flavor}
        return sorted(at for at in found if world.now < at < FOREVER)

    def _less_later(self, at: int, until: int) -> list[int]:
        """Return `at` and the starts of entries before `until`: less may be free then."""
        return [at, *sorted({e.start for e in self.entries if at < e.start < until})]

    # GPUs

    def free(self, node: Node, at: int) -> int:
        slots = {
            slot
            for lease in self.leases
            if lease.node == node.name and self.ends[lease.number] > at
            for slot in lease.slots
        }
        taken = sum(e.nodes.get(node.name, 0) for e in self.entries if e.start <= at < e.end)
        return max(0, node.gpus - node.foreign - len(slots) - taken)

    def in_use(self, at: int) -> set[str]:
        """Return the nodes with leases or foreign pods."""
        foreign = {node.name for node in self.world.nodes.values() if node.foreign}
        return foreign | {x.node for x in self.leases if self.ends[x.number] > at}

    def room(self, at: int, until: int) -> dict[str, int]:
        """Return the GPUs of each usable node of the flavor that are free from `at` to `until`."""
        instants = self._less_later(at, until)
        return {
            node.name: min(self.free(node, each) for each in instants)
            for node in self.world.nodes.values()
            if node.flavor == self.run.flavor and node.usable
        }

    # Money

    def paid(self, envelopes: set[str], at: int, *, lent: bool = False) -> int:
        """Return the GPUs that these envelopes pay for (with `lent`: lend) at an instant."""
        leased = sum(
            lease.gpus
            for lease in self.leases
            if lease.payer in envelopes
            and self.ends[lease.number] > at
            and (lease.relation == "Borrowed" or not lent)
        )
        there = (e for e in self.entries if e.start <= at < e.end)
        return leased + sum(e.gpus_of(envelopes, lent=lent) for e in there)

    def most_paid(self, envelopes: set[str], at: int, until: int, *, lent: bool = False) -> int:
        return max(self.paid(envelopes, each, lent=lent) for each in self._less_later(at, until))

    def hours_bound(self, envelope: Envelope, at: int, *, lent: bool = False) -> int:
        """C5: return the GPU-time used by then, committed by open leases, and claimed by plans."""
        total = 0
        for lease in self.world.leases:
            if lease.payer == envelope.name and (lease.relation == "Borrowed" or not lent):
                if lease.end is None and lease.number not in self.ends:
                    total += used(self.world, lease, envelope, self.world.now, self.world.now)
                    continue
                end = self.ends[lease.number] if lease.end is None else lease.end
                total += used(self.world, lease, envelope, at, end)
                if lease.end is None and end > at:
                    total += committed(self.world, lease, envelope, at)
        for entry in self.entries:
            total += (entry.lent_hours if lent else entry.hours).get(envelope.name, 0)
        return total

    def later_starts(self, envelope: Envelope, at: int) -> list[int]:
        """Return the starts of plans that claim hours of this envelope."""
        return sorted({e.start for e in self.entries if envelope.name in e.hours and e.start > at})


def used(world: World, lease: Lease, envelope: Envelope, at: int, end: int) -> int:
    """Return the GPU-time that a lease used within the window; an open lease counts until `at`, or
    until its end if that is earlier."""
    if lease.end is None:
        end = min(at, max(end, world.now))
    return lease.gpus * max(0, end - max(lease.start, envelope.start))


def committed(world: World, lease: Lease, envelope: Envelope, at: int) -> int:
    """C5: return the GPU-time that a lease may still use: to its limit or over the horizon, never
    past the window. A lease that is ending commits nothing more."""
    if lease.ending:
        return 0
    limit = world.limit_of(lease)
    end = at + world.config["accounting.horizon"] if limit is None else limit
    return lease.gpus * max(0, min(end, envelope.end) - at)
