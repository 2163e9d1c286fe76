"""resolve: preempt for a run whose start by preemption is due, by rules R1 to R7.

Only leases in the domains of its site may be cut: spares, then groups by rounds, then the lottery,
until the run fits there. Then each victim that is not needed is given back. Changes nothing: it
works in a what-if.
"""

from collections.abc import Collection

from msgspec.structs import replace

from leasehold.core.decisions.admit import Wish, as_found_by
from leasehold.core.decisions.calendar import Calendar, Kept
from leasehold.core.decisions.cuts import Cuts, Scope, Seeder, cut_until_it_fits
from leasehold.core.decisions.outlook import leases_ended_by
from leasehold.core.decisions.pack import Want, pods_room, shape_of, try_pack
from leasehold.core.facts import Lease, Location, Record
from leasehold.core.reservations import Held
from leasehold.core.units import Instant
from leasehold.core.verdicts import Admitted, Covered, Packed, PodPlace, Refusal, Refused, Segment
from leasehold.core.world.fleet import Pool
from leasehold.core.world.world import World


class PlannedSite(Record):
    """The site of a run as recorded in its Reservation."""

    domains: tuple[str, ...]
    money: tuple[Held, ...]

    def locations(self) -> tuple[Location, ...]:
        return tuple(sorted({each.location for each in self.money}))

    def groups_at(self, want: Want) -> dict[Location, int]:
        """Return how many groups are paid for in each location."""
        found: dict[Location, int] = {}
        for each in self.money:
            found[each.location] = found.get(each.location, 0) + each.gpus
        return {location: gpus // want.gpus_per_group for location, gpus in found.items()}

    def covered(self, world: World) -> tuple[tuple[Location, Covered], ...]:
        return tuple(
            (location, Covered(segments=self._segments(world, location), trace=()))
            for location in self.locations()
        )

    def _segments(self, world: World, location: Location) -> tuple[Segment, ...]:
        return tuple(
            Segment(
                envelope=each.payer,
                owner=world.envelopes[each.payer].owner,
                gpus=each.gpus,
                relation=each.relation,
            )
            for each in self.money
            if each.location == location
        )


class Resolved(Record):
    """The outcome of a preemption: what is cut, and where the run goes."""

    cuts: Cuts
    plan: Admitted  # where the run goes once the victims are gone
    deficit: int  # GPUs
    need: tuple[tuple[int, int], ...]  # (group, GPUs)
    free: tuple[tuple[str, int], ...]  # (node, GPUs)


def resolve(
    world: World,
    wish: Wish,
    calendar: Calendar,
    planned: PlannedSite,
    *,
    now: Instant,
    seeder: Seeder,
) -> Resolved | Refused:
    """Return what must be cut so that the run fits in its site's domains, or why nothing helps."""
    with world.what_if.opened():
        arena = Arena(world, wish, calendar, planned, at=now, now=now)
        deficit, free = arena.deficit(), arena.free()
        cuts = cut_until_it_fits(arena.scope(), seeder=seeder, now=now, but=wish.run.uid)
        packed = None if cuts is None else arena.packed()
        if cuts is None or packed is None:
            return not_enough(wish.want, deficit)
        return Resolved(
            cuts=cuts,
            plan=Admitted(covered=planned.covered(world), packed=packed),
            deficit=deficit,
            need=tuple((group, wish.want.gpus_per_group) for group in wish.want.groups),
            free=free,
        )


def is_going(lease: Lease, now: Instant) -> bool:
    """Return whether an ending lease counts as gone, which it does until its deadline (R1)."""
    return lease.ending is not None and now < lease.ending.deadline


def let_go(world: World, *, now: Instant) -> set[str]:
    """Give back the GPUs and money of ending leases and return their names.

    The caller must hold an open what-if.
    """
    going = {name for name in world.ending if is_going(world.leases[name], now)}
    for name in sorted(going):
        world.fleet.give(world.leases[name])
        world.accounts.end(world.leases[name], world.terms[name], at=now)
    return going


def not_enough(want: Want, deficit: int) -> Refused:
    return Refused(
        reason=Refusal.CAPACITY,
        remedy="the run would not fit even if all runs that may be preempted were preempted, so "
        "none is. Use smaller groups or another selector, or wait until runs are no "
        "longer protected (resolver.minTenure)",
        asked=want.gpus,
        short_by=deficit,
    )


class Arena:
    """The domains of a site, in the state in which the run finds them at `at`.

    The caller must hold an open what-if.
    """

    def __init__(
        self,
        world: World,
        wish: Wish,
        calendar: Calendar,
        planned: PlannedSite,
        *,
        at: Instant,
        now: Instant,
    ) -> None:
        self._world, self._wish = world, wish
        self._groups_at = planned.groups_at(wish.want)
        over = let_go(world, now=now)
        pools = (world.fleet.pools.get((wish.want.flavor, each)) for each in planned.domains)
        self.pools = [pool for pool in pools if pool is not None]
        nodes = [name for pool in self.pools for name in pool.nodes]
        ended = set(leases_ended_by(world, nodes, at, now)) - over if at > now else set()
        for name in sorted(ended):
            world.fleet.give(world.leases[name])
        self._gone = over | ended
        self.kept: Kept = as_found_by(world, wish, calendar, start=at, gone=self._gone)

    def scope(self) -> Scope:
        """Return the scope: every lease of another run in these domains."""
        leases = [
            lease
            for pool in self.pools
            for node in pool.nodes
            for name in sorted(self._world.open_by_node.get(node, ()))
            if name not in self._gone
            and (lease := self._world.leases[name]).uid != self._wish.run.uid
        ]
        leases.sort(key=lambda lease: lease.name)
        return Scope(
            self._world,
            leases,
            self.fits,
            free=self.kept.end,
            restore=self.kept.restore,
            gone=self._gone,
        )

    def fits(self) -> bool:
        return all(self._room(pools) >= groups for pools, groups in self._by_location()) and (
            not self._asks_more() or self.packed() is not None
        )

    def _asks_more(self) -> bool:
        want = self._wish.want
        return bool(want.cpu_milli or want.memory_bytes or want.spares_on_reserved or want.only)

    def _by_location(self) -> list[tuple[list[Pool], int]]:
        return [
            ([pool for pool in self.pools if pool.home[1:] == location], groups)
            for location, groups in sorted(self._groups_at.items())
        ]

    def _room(self, pools: Collection[Pool]) -> int:
        """Return how many groups fit in these pools."""
        want = self._wish.want
        rooms = [
            pods_room(self._world.fleet, pool, shape_of(want)) // (want.pods + want.spares)
            for pool in pools
        ]
        return sum(rooms) if want.spread else max(rooms, default=0)

    def deficit(self) -> int:
        """Return the GPUs of the pods that have no place."""
        want, fleet = self._wish.want, self._world.fleet
        room = sum(pods_room(fleet, pool, shape_of(want)) for pool in self.pools)
        return max(0, want.gpus // want.pod_gpus - room) * want.pod_gpus

    def free(self) -> tuple[tuple[str, int], ...]:
        nodes = self._world.fleet.nodes
        names = [name for pool in self.pools for name in pool.nodes]
        return tuple((name, nodes[name].free) for name in names if nodes[name].free)

    def packed(self) -> Packed | None:
        """Return places for all groups in the present state of the what-if, or None."""
        places: list[PodPlace] = []
        left = list(self._wish.want.groups)
        for pools, count in self._by_location():
            groups, left = tuple(left[:count]), left[count:]
            want = replace(
                self._wish.want,
                groups=groups,
                own_domains=(),
                within=tuple(sorted(pool.domain for pool in pools)),
            )
            part = try_pack(self._world, want, sorted({pool.home[1:] for pool in pools}))
            if part is None:
                return None
            places += part.places
        return Packed(places=tuple(sorted(places, key=lambda each: (each.group, each.spare))))
