"""When pods of a size will have room, domain by domain, as far as ends of leases are known.

Planning many runs asks the same question over and over: from which instant on can a node take one
more pod? An outlook answers it for every node of a flavor once, and is corrected node by node as
plans are put on the calendar. `forecast` reads it; it changes nothing.
"""

from bisect import bisect_left, insort

from leasehold.core.decisions.calendar import Calendar
from leasehold.core.decisions.releases import releases_on
from leasehold.core.facts import Uid
from leasehold.core.units import FOREVER, Instant
from leasehold.core.world.levels import fewest_from_each
from leasehold.core.world.world import World

Ends = dict[str, list[tuple[Instant, int]]]  # by node: when so many GPUs come free


class Outlook:
    """For each pool the sorted instants from which one more pod of this size has room."""

    def __init__(
        self,
        world: World,
        calendar: Calendar,
        *,
        flavor: str,
        gpus: int,
        now: Instant,
        ends: Ends | None = None,
    ) -> None:
        self._ends_of: Ends = {} if ends is None else ends  # shared by outlooks of all sizes
        self._world = world
        self._calendar = calendar
        self._gpus = gpus
        self._now = now
        self.flavor = flavor
        self._ends_of_leases: list[Instant] | None = None
        self.pods: dict[str, list[Instant]] = {}  # by domain
        self._by_node: dict[str, list[Instant]] = {}
        for (each, domain), pool in world.fleet.pools.items():
            if each == flavor:
                times: list[Instant] = []
                for name in pool.nodes:
                    self._by_node[name] = found = self.node_times(name, FOREVER, "")
                    times.extend(found)
                times.sort()
                self.pods[domain] = times

    @property
    def ends_of_leases(self) -> list[Instant]:
        """When leases are known to end, whoever pays for them and wherever they are, in order."""
        if self._ends_of_leases is None:
            ends = {term.frees_at for term in self._world.terms.values()}
            self._ends_of_leases = sorted(at for at in ends if self._now < at < FOREVER)
        return self._ends_of_leases

    def correct(self, name: str) -> None:
        """What is held on a node has changed."""
        if name not in self._by_node:
            return
        times = self.pods[self._world.fleet.nodes[name].node.domain]
        for at in self._by_node[name]:
            del times[bisect_left(times, at)]
        self._by_node[name] = found = self.node_times(name, FOREVER, "")
        for at in found:
            insort(times, at)

    def pods_for(self, uid: Uid, span: int, limit: int) -> dict[str, list[Instant]]:
        """The same as one run sees it: what it has there, and what starts after it has ended,
        is not in its way. The lists of domains without entries are those of `pods`: there room
        stays once it has come."""
        own = {entry.node for entry in self._calendar.entries_of(uid)}
        names = sorted(own) if span >= FOREVER else self._calendar.nodes()
        domains: dict[str, list[str]] = {}
        for name in names:
            if name in self._by_node:
                domains.setdefault(self._world.fleet.nodes[name].node.domain, []).append(name)
        if not domains:
            return self.pods
        found = dict(self.pods)
        for domain, names in domains.items():
            times = list(found[domain])
            for name in names:
                for at in self._by_node[name]:
                    del times[bisect_left(times, at)]
                times.extend(self.node_times(name, span, uid, limit))
                times.sort()
            found[domain] = times
        return found

    def node_times(self, name: str, span: int, but: Uid, limit: int = FOREVER) -> list[Instant]:
        """When a run of this span could have one pod more on the node than just before: for one
        without an end from then on; else room may go again, and is named once more when it comes
        back."""
        state = self._world.fleet.nodes[name]
        if not state.takes_work:
            return []
        free = state.free
        ends = self._ends(name)
        entries = []
        for entry in self._calendar.entries_on(name, but, limit):
            if entry.start <= self._now and entry.end == FOREVER:
                free -= entry.gpus
            else:
                entries.append(entry)
        if not entries:
            return self._plain(free, ends)
        instants = {self._now, *(at for at, _ in ends)}
        instants.update(entry.end for entry in entries if entry.end < FOREVER)
        if span < FOREVER:  # and when room goes, or it would not be seen to come back
            instants.update(entry.start for entry in entries if entry.start > self._now)
        starts = sorted(instants)
        drops = [(at, -gpus) for at, gpus in ends]
        for entry in entries:
            drops += (entry.start, entry.gpus), (entry.end, -entry.gpus)
        times: list[Instant] = []
        before = 0
        lefts = fewest_from_each(free, drops, starts=starts, span=span)
        for at, left in zip(starts, lefts, strict=True):
            pods = max(0, left) // self._gpus
            times.extend([at] * (pods - before))
            before = pods
        return times

    def _plain(self, free: int, ends: list[tuple[Instant, int]]) -> list[Instant]:
        times = [self._now] * (max(0, free) // self._gpus)
        for at, gpus in ends:
            free += gpus
            times.extend([at] * (max(0, free) // self._gpus - len(times)))
        return times

    def _ends(self, name: str) -> list[tuple[Instant, int]]:
        known = self._ends_of.get(name)
        if known is None:
            known = self._ends_of[name] = ends_on(self._world, name, self._now)
        return known


def ends_on(world: World, node: str, now: Instant) -> list[tuple[Instant, int]]:
    """(when, GPUs that come free then), in order; a slot under two leases counts once."""
    counts: dict[Instant, int] = {}
    for at in releases_on(world, node, after=now).values():
        if at < FOREVER:
            counts[at] = counts.get(at, 0) + 1
    return sorted(counts.items())


def leases_ended_by(world: World, names: list[str], at: Instant, now: Instant) -> list[str]:
    """Open leases on these nodes that are known to end by then."""
    return [
        lease
        for node in names
        for lease in sorted(world.open_by_node.get(node, ()))
        if now < world.terms[lease].frees_at <= at
    ]
