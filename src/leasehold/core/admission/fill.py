"""fill: place an opportunistic run on other runs' spares if free GPUs are not enough (F1).

The filler's payer pays for the use; the spare's payer continues to pay for keeping the slots. Some
pods may use free GPUs and others spares, but one pod never mixes them. A *seat* is the slots of one
pod on a node's spares.
"""

from leasehold.core.calendar.entries import Calendar
from leasehold.core.facts import Lease, Location, Role
from leasehold.core.funding.claims import funding_request_for, preference
from leasehold.core.funding.cover import cover
from leasehold.core.placement.drain import will_be_taken_over
from leasehold.core.placement.pack import best_node, candidate_pools, pods_room, shape_of
from leasehold.core.requests import StartRequest
from leasehold.core.units import FOREVER, Instant
from leasehold.core.verdicts import Admitted, Packed, PodPlace, Refusal, Refused
from leasehold.core.world.fleet import NodeState, Pool, mask_of
from leasehold.core.world.width import locations_for
from leasehold.core.world.world import World


def fill(
    world: World, request: StartRequest, calendar: Calendar, *, now: Instant
) -> Admitted | Refused:
    """Return payers and places for the whole run in one location, or why there are none.

    Chooses the location with the least borrowed money, then least shared, then by name. A filler
    has no spares of its own.
    The caller must hold an open what-if in which GPUs and money on the calendar are taken.
    """
    refused: Refused | None = None
    found: list[Admitted] = []
    seats = _Seats(world, request, calendar, now=now)
    for location in locations_for(world, request.run.spec):
        gpus = request.placement.pods * request.placement.pod_gpus * len(request.placement.groups)
        ask = funding_request_for(
            request, location, gpus, start=now, borrowed=request.borrowed_already
        )
        covered = cover(world, ask, now=now)
        if isinstance(covered, Refused):
            refused = refused or covered
            continue
        pods = seats.deal_all(location)
        if pods is not None:
            packed = Packed(places=tuple(pods))
            found.append(Admitted(covered=((location, covered),), packed=packed))
    if found:
        return min(found, key=lambda plan: preference(plan.covered[0]))
    return refused or Refused(
        reason=Refusal.CAPACITY,
        remedy="neither the free GPUs nor the spares of other runs have room for this run",
        asked=request.placement.gpus,
        short_by=request.placement.gpus,
    )


class _Seats:
    """Places the pods of one run on free GPUs and on spares."""

    def __init__(
        self, world: World, request: StartRequest, calendar: Calendar, *, now: Instant
    ) -> None:
        self._world = world
        self._request = request
        self._calendar = calendar
        self._now, self._until = now, min(FOREVER, now + request.in_the_way)
        self._shape = shape_of(request.placement)
        self._on_spares: dict[str, list[tuple[int, ...]]] = {}  # node -> seats left

    def deal_all(self, location: Location) -> list[PodPlace] | None:
        """Return places for all groups in a location, or None if they do not fit.

        All groups are placed in one domain if possible, otherwise group by group.
        """
        placement = self._request.placement
        pools = candidate_pools(self._world.fleet, placement, [location])
        self._on_spares = {
            name: seats
            for pool in pools
            for name in pool.nodes
            if name in self._world.fleet.fillable and (seats := self._seats_on(name))
        }
        with self._world.what_if.opened():
            pods = self._deal(placement.groups, pools)
            if pods is None and placement.spread:
                pods = []
                for group in placement.groups:
                    one = self._deal((group,), pools)
                    if one is None:
                        pods = None
                        break
                    pods.extend(one)
        return pods

    def _deal(self, groups: tuple[int, ...], pools: list[Pool]) -> list[PodPlace] | None:
        """Place these groups in one domain, or return None.

        Tries the run's own domains first, then the domains in which the fewest pods fit.
        """
        needed = self._request.placement.pods * len(groups)
        own = self._request.placement.own_domains
        rooms = [(pool.domain not in own, self._room(pool), pool.domain, pool) for pool in pools]
        for _, room, _, pool in sorted(rooms, key=lambda each: each[:3]):
            if room >= needed:
                before = {name: list(seats) for name, seats in self._on_spares.items()}
                with self._world.what_if.opened() as trial:
                    pods = self._deal_in(groups, pool)
                    if pods is not None:
                        trial.keep()
                        return pods
                self._on_spares = before
        return None

    def _room(self, pool: Pool) -> int:
        """Return how many pods fit in a domain, on free GPUs and on spares."""
        on_spares = sum(len(self._on_spares.get(name, ())) for name in pool.nodes)
        return pods_room(self._world.fleet, pool, self._shape) + on_spares

    def _deal_in(self, groups: tuple[int, ...], pool: Pool) -> list[PodPlace] | None:
        """Place the pods of these groups in one domain, or return None.

        Free GPUs are used first, because a filler on a spare ends when the spare is needed.
        """
        placement, fleet = self._request.placement, self._world.fleet
        pods: list[PodPlace] = []
        for group in groups:
            for index in range(placement.pods):
                on_spare: tuple[int, ...] = ()
                name = best_node(fleet, pool, self._shape, frozenset(placement.last))
                if name is not None:
                    fleet.plan_pod(name, self._shape)
                else:
                    seat = self._seat_in(pool)
                    if seat is None:
                        return None
                    name, on_spare = seat
                pods.append(
                    PodPlace(
                        group=group,
                        index=index,
                        node=name,
                        gpus=placement.pod_gpus,
                        on_spare=on_spare,
                    )
                )
        return pods

    def _seat_in(self, pool: Pool) -> tuple[str, tuple[int, ...]] | None:
        """Take a seat (the slots of one pod) from the node with the fewest seats left, or return
        None."""
        seats = self._on_spares
        names = [name for name in pool.nodes if seats.get(name)]
        if not names:
            return None
        name = min(names, key=lambda each: (len(seats[each]), each))
        return name, seats[name].pop(0)

    def _seats_on(self, name: str) -> list[tuple[int, ...]]:
        """Return the seats on a node's spares: for each pod that fits, its slots.

        Slots that a filler uses and spares that are needed do not count. Foreign pods that took
        GPUs of a spare reduce the number. A node that a plan or hold needs has no seats (F2).
        """
        state = self._world.fleet.nodes[name]
        if not state.takes_work or self._is_counted_on(name):
            return []
        mask = state.spare & ~state.filler
        for lease_name in sorted(self._world.open_by_node.get(name, ())):
            lease = self._world.leases[lease_name]
            if lease.role is Role.SPARE and self._is_needed(lease):
                mask &= ~mask_of(lease.slots)
        slots = [slot for slot in range(state.node.gpus) if mask >> slot & 1]
        too_many = state.occupied.bit_count() + state.foreign - state.node.gpus
        size = self._shape.gpus
        pods = min((len(slots) - max(0, too_many)) // size, self._room_beside(state))
        return [tuple(slots[size * index : size * (index + 1)]) for index in range(pods)]

    def _is_counted_on(self, name: str) -> bool:
        """Return whether a plan or hold needs the node while the filler would run there (F2)."""
        limit = self._request.limit
        return any(
            self._now < entry.end and entry.start < self._until
            for entry in self._calendar.entries_on(name, self._request.run.uid, limit)
        )

    def _is_needed(self, spare: Lease) -> bool:
        """Return whether the spare is ending, or a pod of its own run will take it over."""
        return spare.ending is not None or will_be_taken_over(self._world, spare)

    def _room_beside(self, state: NodeState) -> int:
        """Return how many pods fit on the node by CPU, memory and pod count.

        The CPU and memory that the spares need stay reserved.
        """
        node, shape = state.node, self._shape
        room = node.pods_max - state.pods_used
        if shape.cpu_milli:
            room = min(room, (node.cpu_milli - state.cpu_used) // shape.cpu_milli)
        if shape.memory_bytes:
            room = min(room, (node.memory_bytes - state.memory_used) // shape.memory_bytes)
        return max(0, room)
