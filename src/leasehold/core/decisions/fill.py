"""fill: place an opportunistic run on other runs' spares if free GPUs are not enough (F1).

The filler's payer pays for the use; the spare's payer goes on paying for the right to fail over.
Some pods may use free GPUs and others spares, but one pod never mixes them. Called in a what-if
that already respects the plans ahead.
"""

from leasehold.core.decisions.admit import Wish, ask_for, preference
from leasehold.core.decisions.calendar import Calendar
from leasehold.core.decisions.cover import cover
from leasehold.core.decisions.drain import is_spoken_for
from leasehold.core.decisions.pack import best_node, candidate_pools, pods_room, shape_of
from leasehold.core.facts import Lease, Location, Role
from leasehold.core.units import FOREVER, Instant
from leasehold.core.verdicts import Admitted, Packed, PodPlace, Refusal, Refused
from leasehold.core.world.fleet import NodeState, Pool, mask_of
from leasehold.core.world.width import locations_for
from leasehold.core.world.world import World


def fill(world: World, wish: Wish, calendar: Calendar, *, now: Instant) -> Admitted | Refused:
    """Return a place for the whole run in one location, or why there is none.

    Chooses the location with the least borrowed money, then least shared, then by name. A filler
    has no spares of its own.
    """
    refused: Refused | None = None
    found: list[Admitted] = []
    seats = _Seats(world, wish, calendar, now=now)
    for location in locations_for(world, wish.run.spec):
        gpus = wish.want.pods * wish.want.pod_gpus * len(wish.want.groups)
        ask = ask_for(wish, location, gpus, start=now, borrowed=wish.borrowed_already)
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
        asked=wish.want.gpus,
        short_by=wish.want.gpus,
    )


class _Seats:
    """Places for pods of one run, on free GPUs and on spares."""

    def __init__(self, world: World, wish: Wish, calendar: Calendar, *, now: Instant) -> None:
        self._world = world
        self._wish = wish
        self._calendar = calendar
        self._now, self._until = now, min(FOREVER, now + wish.in_the_way)
        self._shape = shape_of(wish.want)
        self._on_spares: dict[str, list[tuple[int, ...]]] = {}  # node -> slots of one pod each

    def deal_all(self, location: Location) -> list[PodPlace] | None:
        want = self._wish.want
        pools = candidate_pools(self._world.fleet, want, [location])
        self._on_spares = {
            name: seats
            for pool in pools
            for name in pool.nodes
            if name in self._world.fleet.fillable and (seats := self._seats_on(name))
        }
        with self._world.what_if.opened():
            pods = self._deal(want.groups, pools)
            if pods is None and want.spread:
                pods = []
                for group in want.groups:
                    one = self._deal((group,), pools)
                    if one is None:
                        pods = None
                        break
                    pods.extend(one)
        return pods

    def _deal(self, groups: tuple[int, ...], pools: list[Pool]) -> list[PodPlace] | None:
        """Place these groups in one domain, or return None.

        Tries the run's own domains first, then those with the fewest seats.
        """
        needed = self._wish.want.pods * len(groups)
        own = self._wish.want.own_domains
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
        on_spares = sum(len(self._on_spares.get(name, ())) for name in pool.nodes)
        return pods_room(self._world.fleet, pool, self._shape) + on_spares

    def _deal_in(self, groups: tuple[int, ...], pool: Pool) -> list[PodPlace] | None:
        """Place pods on free GPUs first, because a filler on a spare ends when the spare is
        needed."""
        want, fleet = self._wish.want, self._world.fleet
        pods: list[PodPlace] = []
        for group in groups:
            for index in range(want.pods):
                on_spare: tuple[int, ...] = ()
                name = best_node(fleet, pool, self._shape, frozenset(want.last))
                if name is not None:
                    fleet.plan_pod(name, self._shape)
                else:
                    seat = self._seat_in(pool)
                    if seat is None:
                        return None
                    name, on_spare = seat
                pods.append(
                    PodPlace(
                        group=group, index=index, node=name, gpus=want.pod_gpus, on_spare=on_spare
                    )
                )
        return pods

    def _seat_in(self, pool: Pool) -> tuple[str, tuple[int, ...]] | None:
        seats = self._on_spares
        names = [name for name in pool.nodes if seats.get(name)]
        if not names:
            return None
        name = min(names, key=lambda each: (len(seats[each]), each))
        return name, seats[name].pop(0)

    def _seats_on(self, name: str) -> list[tuple[int, ...]]:
        """Return the seats on a node's spares: the slots of one pod each.

        Excluded are slots that a filler uses and spares that are needed. Foreign pods that took
        GPUs of a spare reduce the number. A node that an entry of the calendar needs has no seats
        (F2).
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
        span = self._wish.limit
        return any(
            self._now < entry.end and entry.start < self._until
            for entry in self._calendar.entries_on(name, self._wish.run.uid, span)
        )

    def _is_needed(self, spare: Lease) -> bool:
        """Return whether the spare is ending or a lost pod will take it over."""
        return spare.ending is not None or is_spoken_for(self._world, spare)

    def _room_beside(self, state: NodeState) -> int:
        """Return how many pods fit by CPU, memory and pod count. The spare's own share stays
        reserved."""
        node, shape = state.node, self._shape
        room = node.pods_max - state.pods_used
        if shape.cpu_milli:
            room = min(room, (node.cpu_milli - state.cpu_used) // shape.cpu_milli)
        if shape.memory_bytes:
            room = min(room, (node.memory_bytes - state.memory_used) // shape.memory_bytes)
        return max(0, room)
