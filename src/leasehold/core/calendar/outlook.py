"""When pods of one size will fit, domain by domain, as far as the ends of leases are known.

The plans of many runs need the same answer: from which instant on can a node take one more pod? For
a node or a domain, the answer is a sorted list with one instant for each pod. A `Supply` computes
these lists for leases alone and is kept from walk to walk. An `Outlook` adds the entries of the
calendar as a walk enters them. `forecast` reads it.

Example: pods of 4 GPUs, and a node of 8 with 4 free now and 4 under a lease until 12:00. Its list
is [NOW, 12:00]: one pod fits now, a second one from 12:00 on.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable

from leasehold.core.calendar.entries import Calendar, Entry
from leasehold.core.calendar.releases import releases_on
from leasehold.core.facts import Uid
from leasehold.core.units import FOREVER, Instant
from leasehold.core.world.levels import fewest_from_each
from leasehold.core.world.world import World

Ends = list[tuple[Instant, int]]  # when leases of a node end, and how many GPUs come free then
NOW: Instant = 0  # stands for the present, whatever the time


# For each node of a domain that has calendar entries: its entries.
_EntriesOfNodes = tuple[tuple[Entry, ...], ...]
# When one more pod fits, given these entries: in the whole domain, and on each of these nodes.
_TimesBeside = tuple[list[Instant], dict[str, list[Instant]]]
_CACHED_MAX = 256  # per domain


class _TimesBesideLeases:
    """For pods of one size: when one more pod fits on each node and in each domain, if the calendar
    were empty."""

    __slots__ = ("beside", "by_node", "pods", "stale")

    def __init__(self) -> None:
        self.by_node: dict[str, list[Instant]] = {}
        self.pods: dict[str, list[Instant]] = {}  # domain -> its nodes' instants, sorted
        self.stale: set[str] = set()  # nodes that must be computed again
        # domain -> the entries on its nodes -> when one more pod fits, given these entries
        self.beside: dict[str, dict[_EntriesOfNodes, _TimesBeside]] = {}


class Supply:
    """Computes when GPUs come free as leases end, without the calendar, and keeps the results.

    The caller must call `forget` for nodes that changed.
    """

    def __init__(self) -> None:
        self._ends: dict[str, Ends] = {}
        self._plain: dict[tuple[str, int], _TimesBesideLeases] = {}  # by flavor and GPUs of a pod

    def forget(self, nodes: Iterable[str]) -> None:
        for name in nodes:
            self._ends.pop(name, None)
            for plain in self._plain.values():
                plain.stale.add(name)

    def forget_all(self) -> None:
        self._ends.clear()
        self._plain.clear()

    def ends_on(self, world: World, name: str, now: Instant) -> Ends:
        """Return (instant, GPUs that come free then) for a node; a slot under two leases counts
        once."""
        known = self._ends.get(name)
        if known is None:
            known = self._ends[name] = ends_on(world, name, now)
        return known

    def plain(self, world: World, flavor: str, gpus: int, now: Instant) -> _TimesBesideLeases:
        """Return when one more pod of `gpus` GPUs fits on each node of a flavor, without the
        calendar."""
        known = self._plain.get((flavor, gpus))
        if known is None:
            known = self._plain[(flavor, gpus)] = _TimesBesideLeases()
            for (each, domain), pool in world.fleet.pools.items():
                if each == flavor:
                    for name in pool.nodes:
                        known.by_node[name] = self._times(world, name, gpus, now)
                    times = [at for name in pool.nodes for at in known.by_node[name]]
                    known.pods[domain] = sorted(times)
        for name in known.stale & known.by_node.keys():
            domain = world.fleet.nodes[name].node.domain
            found = self._times(world, name, gpus, now)
            if found != known.by_node[name]:
                _replace_times(known.pods[domain], known.by_node[name], found)
                known.by_node[name] = found
            known.beside.pop(domain, None)
        known.stale.clear()
        return known

    def _times(self, world: World, name: str, gpus: int, now: Instant) -> list[Instant]:
        state = world.fleet.nodes[name]
        if not state.takes_work:
            return []
        return _times_beside_leases(state.free, self.ends_on(world, name, now), gpus)


class Outlook:
    """For each domain of a flavor, the sorted instants from which one more pod of a size fits.

    Both leases and the calendar are taken into account.
    """

    def __init__(
        self,
        world: World,
        calendar: Calendar,
        *,
        flavor: str,
        gpus: int,
        now: Instant,
        supply: Supply | None = None,
    ) -> None:
        self._world = world
        self._calendar = calendar
        self._supply = supply or Supply()
        self._gpus = gpus
        self._now = now
        self.flavor = flavor
        self._ends_of_leases: list[Instant] | None = None
        self._plain = self._supply.plain(world, flavor, gpus, now)
        self._pods = dict(self._plain.pods)  # domain -> instants, given leases and entries
        # domain -> node with entries -> instants
        self._beside: dict[str, dict[str, list[Instant]]] = {}
        self._stale: set[str] = set()  # domains that must be computed again
        for name in calendar.nodes():
            self.correct(name)

    @property
    def pods(self) -> dict[str, list[Instant]]:
        """Return, for each domain, the sorted instants from which one more pod fits."""
        self.settle()
        return self._pods

    def settle(self) -> None:
        """Recompute the domains whose leases or calendar entries have changed."""
        for domain in self._stale:
            self._settle(domain)
        self._stale.clear()

    def plain_times(self, domain: str) -> list[Instant]:
        """Return the instants from which one more pod would fit in a domain if the calendar were
        empty."""
        return self._plain.pods.get(domain, [])

    def correct(self, name: str) -> None:
        """Note that leases or calendar entries on a node have changed, so its domain must be
        recomputed."""
        if name in self._plain.by_node:
            self._stale.add(self._world.fleet.nodes[name].node.domain)

    def _settle(self, domain: str) -> None:
        """Recompute when one more pod fits in a domain, or reuse the result of an earlier walk.

        Most domains have the same calendar entries in every walk. A result is reused for the same
        entries until a lease in the domain changes.
        """
        plain = self._supply.plain(self._world, self.flavor, self._gpus, self._now)
        names = self._nodes_with_entries(domain)
        held = tuple(tuple(self._calendar.on_node(name)) for name in names)
        kept = plain.beside.setdefault(domain, {})
        seen = kept.get(held)
        if seen is None or _has_passed(seen[0], self._now):
            times = list(plain.pods[domain])
            nodes = {name: self.node_times(name, FOREVER, "") for name in names}
            for name, found in nodes.items():
                _replace_times(times, plain.by_node[name], found)
            if len(kept) >= _CACHED_MAX:
                kept.clear()
            seen = kept[held] = times, nodes
        self._pods[domain], self._beside[domain] = seen

    def _nodes_with_entries(self, domain: str) -> list[str]:
        """Return the nodes of a domain that have calendar entries."""
        pool = self._world.fleet.pools[(self.flavor, domain)]
        return [name for name in pool.nodes if self._calendar.on_node(name)]

    def _times(self, name: str, domain: str) -> list[Instant]:
        """Return the instants from which one more pod fits on a node, given leases and the
        calendar."""
        known = self._beside.get(domain, {}).get(name)
        return self._plain.by_node[name] if known is None else known

    @property
    def ends_of_leases(self) -> list[Instant]:
        """Return the known ends of all leases of the World, in order."""
        if self._ends_of_leases is None:
            ends = {term.frees_at for term in self._world.terms.values()}
            self._ends_of_leases = sorted(at for at in ends if self._now < at < FOREVER)
        return self._ends_of_leases

    def pods_for(self, uid: Uid, span: int, limit: int) -> dict[str, list[Instant]]:
        """Return what `pods` returns, but as the run `uid` sees it.

        The run's own entries do not count, nor entries that start after the run would have ended.
        Where no entry makes a difference, the list is the very object in `pods`. For a run with a
        limit that shows that the domain has no entries, so that GPUs that came free stay free.

        `span`: for how long the run needs its GPUs. `limit`: its whole limit (Q10).
        """
        domains: dict[str, list[str]] = {}
        for name in self._nodes_seen_differently(uid, span, self._calendar.nodes()):
            domain = self._world.fleet.nodes[name].node.domain
            domains.setdefault(domain, []).append(name)
        found = self.pods
        if domains:
            found = dict(found)
            for domain, names in domains.items():
                found[domain] = self._times_seen_by(domain, names, uid, span, limit)
        return found

    def times_for(self, domain: str, uid: Uid, span: int, limit: int) -> list[Instant]:
        """Return the list of one domain in `pods_for`."""
        if domain in self._stale:
            self._settle(domain)
            self._stale.discard(domain)
        times = self._pods[domain]
        names = self._nodes_seen_differently(uid, span, self._nodes_with_entries(domain))
        return self._times_seen_by(domain, names, uid, span, limit) if names else times

    def _nodes_seen_differently(self, uid: Uid, span: int, names: list[str]) -> list[str]:
        """Return those of the nodes `names` on which pods of the run may fit at other instants than
        in `pods`."""
        if span >= FOREVER:
            own = {entry.node for entry in self._calendar.entries_of(uid)}
            names = [name for name in names if name in own] if own else []
        return [name for name in names if name in self._plain.by_node]

    def _times_seen_by(
        self, domain: str, names: list[str], uid: Uid, span: int, limit: int
    ) -> list[Instant]:
        """Return the instants of a domain in `pods`, corrected for the nodes `names` as the run
        sees them."""
        times = list(self._pods[domain])
        for name in names:
            _replace_times(
                times, self._times(name, domain), self.node_times(name, span, uid, limit)
            )
        return times

    def node_times(self, name: str, span: int, uid: Uid, limit: int = FOREVER) -> list[Instant]:
        """Return the instants from which one more pod of the run fits on a node for `span` ms.

        For a run without a limit (`span` FOREVER) a pod that fits at an instant fits from then on.
        For other runs, an entry may take the GPUs for some time: the instant at which they come
        back is listed again.
        """
        state = self._world.fleet.nodes[name]
        if not state.takes_work:
            return []
        free = state.free
        ends = self._supply.ends_on(self._world, name, self._now)
        entries = []
        for entry in self._calendar.entries_on(name, uid, limit):
            if entry.start <= self._now and entry.end == FOREVER:
                free -= entry.gpus
            else:
                entries.append(entry)
        if not entries:
            return _times_beside_leases(free, ends, self._gpus)
        instants = {self._now, *(at for at, _ in ends)}
        instants.update(entry.end for entry in entries if entry.end < FOREVER)
        if span < FOREVER:  # also count where GPUs are taken, or their return is not noticed
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
            times.extend([at if at > self._now else NOW] * (pods - before))
            before = pods
        return times


def _times_beside_leases(free: int, ends: Ends, gpus: int) -> list[Instant]:
    """Return when one more pod fits on a node with `free` GPUs, on which leases end at `ends`."""
    times = [NOW] * (max(0, free) // gpus)
    for at, count in ends:
        free += count
        times.extend([at] * (max(0, free) // gpus - len(times)))
    return times


def _has_passed(times: list[Instant], now: Instant) -> bool:
    """Return whether an instant that was in the future when the list was made has passed by now."""
    first = bisect_right(times, NOW)
    return first < len(times) and times[first] <= now


def _replace_times(times: list[Instant], old: list[Instant], new: list[Instant]) -> None:
    """Remove the instants `old` from a sorted list, and insert the instants `new`."""
    for at in old:
        del times[bisect_left(times, at)]
    for at in new:
        insort(times, at)


def ends_on(world: World, node: str, now: Instant) -> Ends:
    """Return (instant, GPUs of the node that come free then) in order.

    A slot under two leases (a spare and its filler) counts once, when both have ended.
    """
    counts: dict[Instant, int] = {}
    for at in releases_on(world, node, after=now).values():
        if at < FOREVER:
            counts[at] = counts.get(at, 0) + 1
    return sorted(counts.items())


def leases_ended_by(world: World, names: list[str], at: Instant, now: Instant) -> list[str]:
    """Return the open leases on these nodes that are known to end after `now` and by `at`."""
    return [
        lease
        for node in names
        for lease in sorted(world.open_by_node.get(node, ()))
        if now < world.terms[lease].frees_at <= at
    ]
