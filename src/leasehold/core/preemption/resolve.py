"""resolve: decide what is preempted for a run whose start by preemption is due (R1 to R7).

Only leases in the domains of its site may be cut: spares, then groups in rounds, then a lottery,
until the run fits there. Then each victim that is not needed is given back. Changes nothing: it
works in a what-if.
"""

from collections.abc import Collection

from msgspec.structs import replace

from leasehold.core.admission.admit import as_found_by
from leasehold.core.calendar.entries import Calendar, Overlay
from leasehold.core.calendar.outlook import leases_ended_by
from leasehold.core.facts import Lease, Location, Record
from leasehold.core.placement.pack import pods_room, shape_of, try_pack
from leasehold.core.preemption.victims import Cuts, Scope, Seeder, cut_until_it_fits
from leasehold.core.requests import PlacementRequest, StartRequest
from leasehold.core.reservations import HeldMoney
from leasehold.core.units import Instant
from leasehold.core.verdicts import Admitted, Covered, Packed, PodPlace, Refusal, Refused, Segment
from leasehold.core.world.fleet import Pool
from leasehold.core.world.world import World


class PlannedSite(Record):
    """The domains and payers of a run's site, as recorded in its Reservation."""

    domains: tuple[str, ...]
    money: tuple[HeldMoney, ...]

    def locations(self) -> tuple[Location, ...]:
        return tuple(sorted({each.location for each in self.money}))

    def groups_at(self, placement: PlacementRequest) -> dict[Location, int]:
        """Return how many groups are paid for in each location."""
        found: dict[Location, int] = {}
        for each in self.money:
            found[each.location] = found.get(each.location, 0) + each.gpus
        return {location: gpus // placement.gpus_per_group for location, gpus in found.items()}

    def covered(self, world: World) -> tuple[tuple[Location, Covered], ...]:
        """Return the payers of each location, as `cover` would return them."""
        return tuple(
            (location, Covered(segments=self._segments(world, location), trace=()))
            for location in self.locations()
        )

    def _segments(self, world: World, location: Location) -> tuple[Segment, ...]:
        """Return the payers in one location."""
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
    """The outcome of a preemption for GPUs: what is cut, and where the run starts."""

    cuts: Cuts
    plan: Admitted  # where the run starts once the victims are gone
    deficit: int  # GPUs that the run lacked before the cuts
    need: tuple[tuple[int, int], ...]  # (group, GPUs)
    free: tuple[tuple[str, int], ...]  # (node, GPUs) before the cuts


def resolve(
    world: World,
    request: StartRequest,
    calendar: Calendar,
    planned: PlannedSite,
    *,
    now: Instant,
    seeder: Seeder,
) -> Resolved | Refused:
    """Return what must be cut so that the run fits in the domains of its site.

    Returns a refusal if even cutting everything that may be cut is not enough (Q11).
    """
    with world.what_if.opened():
        site_state = SiteDomains(world, request, calendar, planned, at=now, now=now)
        deficit, free = site_state.deficit(), site_state.free()
        cuts = cut_until_it_fits(
            site_state.scope(), seeder=seeder, now=now, beneficiary=request.run.uid
        )
        packed = None if cuts is None else site_state.packed()
        if cuts is None or packed is None:
            return not_enough(request.placement, deficit)
        return Resolved(
            cuts=cuts,
            plan=Admitted(covered=planned.covered(world), packed=packed),
            deficit=deficit,
            need=tuple(
                (group, request.placement.gpus_per_group) for group in request.placement.groups
            ),
            free=free,
        )


def counts_as_gone(lease: Lease, now: Instant) -> bool:
    """Return whether an ending lease counts as gone, which it does until its deadline (R1)."""
    return lease.ending is not None and now < lease.ending.deadline


def free_ending_leases(world: World, *, now: Instant) -> set[str]:
    """Free the GPUs and the money of ending leases before their deadlines (R1).

    Returns their names. The caller must hold an open what-if.
    """
    going = {name for name in world.ending if counts_as_gone(world.leases[name], now)}
    for name in sorted(going):
        world.fleet.give(world.leases[name])
        world.accounts.end(world.leases[name], world.terms[name], at=now)
    return going


def not_enough(placement: PlacementRequest, deficit: int) -> Refused:
    """Return the refusal if cutting everything that may be cut is not enough."""
    return Refused(
        reason=Refusal.CAPACITY,
        remedy="the run would not fit even if all runs that may be preempted were preempted, so "
        "none is. Use smaller groups or another selector, or wait until runs are no "
        "longer protected (resolver.minTenure)",
        asked=placement.gpus,
        short_by=deficit,
    )


class SiteDomains:
    """The domains of a site, in the state in which the run finds them at `at`.

    Leases that end by then are gone, and plans and holds keep their GPUs.
    The caller must hold an open what-if as long as the object is used.
    """

    def __init__(
        self,
        world: World,
        request: StartRequest,
        calendar: Calendar,
        planned: PlannedSite,
        *,
        at: Instant,
        now: Instant,
    ) -> None:
        self._world, self._request = world, request
        self._groups_at = planned.groups_at(request.placement)
        over = free_ending_leases(world, now=now)
        pools = (
            world.fleet.pools.get((request.placement.flavor, each)) for each in planned.domains
        )
        self.pools = [pool for pool in pools if pool is not None]
        nodes = [name for pool in self.pools for name in pool.nodes]
        ended = set(leases_ended_by(world, nodes, at, now)) - over if at > now else set()
        for name in sorted(ended):
            world.fleet.give(world.leases[name])
        self._gone = over | ended
        self.kept: Overlay = as_found_by(world, request, calendar, start=at, gone=self._gone)

    def scope(self) -> Scope:
        """Return the scope of the preemption: the leases of other runs in these domains that are
        not gone."""
        leases = [
            lease
            for pool in self.pools
            for node in pool.nodes
            for name in sorted(self._world.open_by_node.get(node, ()))
            if name not in self._gone
            and (lease := self._world.leases[name]).uid != self._request.run.uid
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
        """Return whether all groups fit, each in the location that has its payers."""
        return all(self._room(pools) >= groups for pools, groups in self._by_location()) and (
            not self._asks_more() or self.packed() is not None
        )

    def _asks_more(self) -> bool:
        """Return whether the pods need more than free GPUs, so that counting GPUs does not show if
        they fit."""
        placement = self._request.placement
        return bool(
            placement.cpu_milli
            or placement.memory_bytes
            or placement.spares_on_reserved
            or placement.only
        )

    def _by_location(self) -> list[tuple[list[Pool], int]]:
        """Return the site's domains in each location, and how many groups are paid for there."""
        return [
            ([pool for pool in self.pools if pool.home[1:] == location], groups)
            for location, groups in sorted(self._groups_at.items())
        ]

    def _room(self, pools: Collection[Pool]) -> int:
        """Return how many groups fit in these pools."""
        placement = self._request.placement
        rooms = [
            pods_room(self._world.fleet, pool, shape_of(placement))
            // (placement.pods + placement.spares)
            for pool in pools
        ]
        return sum(rooms) if placement.spread else max(rooms, default=0)

    def deficit(self) -> int:
        """Return the GPUs of the pods that have no place."""
        placement, fleet = self._request.placement, self._world.fleet
        room = sum(pods_room(fleet, pool, shape_of(placement)) for pool in self.pools)
        return max(0, placement.gpus // placement.pod_gpus - room) * placement.pod_gpus

    def free(self) -> tuple[tuple[str, int], ...]:
        """Return (node, free GPUs) for the site's nodes with free GPUs."""
        nodes = self._world.fleet.nodes
        names = [name for pool in self.pools for name in pool.nodes]
        return tuple((name, nodes[name].free) for name in names if nodes[name].free)

    def packed(self) -> Packed | None:
        """Return places for all groups in the present state of the what-if, or None."""
        places: list[PodPlace] = []
        left = list(self._request.placement.groups)
        for pools, count in self._by_location():
            groups, left = tuple(left[:count]), left[count:]
            placement = replace(
                self._request.placement,
                groups=groups,
                own_domains=(),
                within=tuple(sorted(pool.domain for pool in pools)),
            )
            part = try_pack(self._world, placement, sorted({pool.home[1:] for pool in pools}))
            if part is None:
                return None
            places += part.places
        return Packed(places=tuple(sorted(places, key=lambda each: (each.group, each.spare))))
