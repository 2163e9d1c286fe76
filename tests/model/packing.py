"""P. Pack: the nodes of a run; and P4, cover and pack together.

All pods of a run have one size, so greedy filling finds a placement if there is one. A bin is a
node's free GPUs, or the GPUs of spares there that a filler may use; a pod is in one bin.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from tests.model.calendar import Calendar
from tests.model.facts import Lease, Place, Placement, Run, Segment, Spot, World
from tests.model.money import Bill, cover

Bin = tuple[str, str]  # node, "free" or "spare"
Pay = Callable[[int, Place, list[Segment]], Bill]


@dataclass
class Refusal:
    reason: str
    of_money: bool


@dataclass
class Room:
    """The GPUs that are free for one run for as long as it needs them."""

    run: Run
    world: World
    bins: dict[Bin, int]
    avoids: list[str] = field(default_factory=list)
    with_spares: bool = True
    used: set[str] = field(default_factory=set)  # nodes in use
    is_for_filler: bool = False

    def copy(self) -> "Room":
        bins = dict(self.bins)
        return replace(self, bins=bins)

    def only_in(self, domains: list[str]) -> "Room":
        room = self.copy()
        room.bins = {k: n for k, n in self.bins.items() if self.domain_of(k[0]) in domains}
        return room

    def domain_of(self, node: str) -> str:
        return self.world.nodes[node].domain

    def domains(self) -> list[str]:
        return sorted({self.domain_of(node) for node, _ in self.bins})

    def pods_of_group(self) -> int:
        return self.run.pods_per_group + (self.run.spare_pods if self.with_spares else 0)

    def gpus_of_group(self) -> int:
        return self.pods_of_group() * self.run.pod_gpus

    def left_in(self, domain: str) -> int:
        return sum(n for (node, _), n in self.bins.items() if self.domain_of(node) == domain)

    def groups_in(self, domain: str) -> int:
        """How many groups fit into the domain."""
        return self.pods_in(domain) // self.pods_of_group()

    def pods_in(self, domain: str) -> int:
        size = self.run.pod_gpus
        return sum(
            gpus // size for (node, _), gpus in self.bins.items() if self.domain_of(node) == domain
        )

    def put(self, group: int, domain: str) -> list[Spot]:
        """P1, P3: place a group in a domain where it fits. Nodes that only this placement uses do
        not count as in use."""
        spots: list[Spot] = []
        for pod in range(self.run.pods_per_group):
            spots.append(self._put(group, pod, domain, set()))
        mine = {spot.node for spot in spots}
        for pod in range(self.run.spare_pods if self.with_spares else 0):
            spot = self._put(group, pod, domain, mine)
            spot.role = "Spare"
            spots.append(spot)
        return spots

    def _put(self, group: int, pod: int, domain: str, beside: set[str]) -> Spot:
        def rank(key: Bin) -> tuple[bool, bool, bool, bool, int, str]:
            node, pool = key
            return (
                node in self.avoids, pool == "spare", node in beside, node not in self.used,
                self.bins[key], node,
            )  # fmt: skip

        fitting = [
            key
            for key, gpus in self.bins.items()
            if gpus >= self.run.pod_gpus and self.domain_of(key[0]) == domain
        ]
        best = min(fitting, key=rank)
        self.bins[best] -= self.run.pod_gpus
        return Spot(group, "Borrowed" if best[1] == "spare" else "Active", pod, best[0])


def may_go(world: World, run: Run, name: str) -> bool:
    node, wanted = world.nodes[name], run.selector
    return (
        wanted.get("region", node.region) == node.region
        and wanted.get("cluster", node.cluster) == node.cluster
        and wanted.get("fabric.domain", node.fabric) == node.fabric
    )


def places_of(world: World, run: Run) -> list[Place]:
    """Return every location with a node of the run's flavor that the run may use."""
    return sorted(
        {
            node.place
            for node in world.nodes.values()
            if node.flavor == run.flavor and not node.gone and may_go(world, run, node.name)
        }
    )


def place_of(domain: str) -> Place:
    region, cluster, _ = domain.split("/")
    return (region, cluster)


def own_domains(world: World, run: Run) -> list[str]:
    """Return the domains in which the run has leases that stay."""
    return sorted({world.nodes[x.node].domain for x in world.leases_of(run) if not x.ending})


# Spares and fillers


def fits_on_spares(calendar: Calendar, at: int, until: int, free: dict[str, int]) -> dict[str, int]:
    """F1, F2: return the GPUs of spares on each node that a filler may use.

    The spares must be unused and not ending, and no run ahead may have a plan or a hold on the node
    before the filler ends. If a spare's lease ends first, its GPUs become the filler's own, so they
    must be free then.
    """
    world, found = calendar.world, {}
    for name in calendar.room(at, until):
        if any(e.nodes.get(name) and e.start < until and e.end > at for e in calendar.entries):
            continue
        node = world.nodes[name]
        slots = spare_slots(world, name)
        taken = {s for x in world.open_leases() if x.node == name for s in x.slots}
        seats = len(slots) - max(0, len(taken) + node.foreign - node.gpus)
        if seats > 0:
            found[name] = seats
    return found


def spare_slots(world: World, name: str) -> list[int]:
    """Return the slots of this node's spares that no filler uses and that are neither ending nor
    promised."""
    there = [lease for lease in world.open_leases() if lease.node == name]
    filled = {slot for lease in there if lease.role == "Borrowed" for slot in lease.slots}
    spares = [x for x in there if x.role == "Spare" and not x.ending and not is_promised(world, x)]
    return sorted({slot for lease in spares for slot in lease.slots} - filled)


def is_promised(world: World, lease: Lease) -> bool:
    """Return whether a swap waits for this spare."""
    unit = world.runs[lease.run].unit_of(lease.group)
    return any((group, pod) == (lease.group, lease.pod) for group, _, pod in unit.swaps)


def free_slots(world: World, name: str) -> list[int]:
    """Return the ordinals without a lease, lowest first."""
    taken = {s for x in world.open_leases() if x.node == name for s in x.slots}
    return [slot for slot in range(world.nodes[name].gpus) if slot not in taken]


# Cover and pack together


def room_for(calendar: Calendar, at: int, *, until: int | None = None, fill: bool = False) -> Room:
    world, run = calendar.world, calendar.run
    until = calendar.until(at) if until is None else until
    free = {n: g for n, g in calendar.room(at, until).items() if may_go(world, run, n)}
    bins: dict[Bin, int] = {(name, "free"): gpus for name, gpus in free.items()}
    if fill:
        for name, gpus in fits_on_spares(calendar, at, until, free).items():
            if name in free:
                bins[name, "spare"] = gpus
    return Room(
        run, world, bins, avoided(run), not fill, used=calendar.in_use(at), is_for_filler=fill
    )


def empty_fleet(world: World, run: Run) -> Room:
    """Return the run's room if all nodes were present and empty."""
    room = Room(run, world, {})
    for node in world.nodes.values():
        if node.flavor == run.flavor and not node.gone and may_go(world, run, node.name):
            room.bins[node.name, "free"] = node.gpus
    return room


def pay_on_empty_fleet(
    calendar: Calendar, groups: list[int], at: int, without: frozenset[str] = frozenset()
) -> Placement | Refusal:
    """Return a placement that has payers at `at` if all nodes were empty, or the refusal."""
    room = _where_it_could_be(empty_fleet(calendar.world, calendar.run), groups)
    return place_and_pay(
        room,
        groups,
        lambda gpus, place, taken: cover(
            calendar, gpus, place, at=at, taken=taken, without=without
        ),
        sorted({place_of(domain) for domain in room.domains()}),
    )


def places_that_could_hold(world: World, run: Run, groups: list[int]) -> list[Place]:
    """Return the locations where the run could be if all nodes were empty."""
    room = _where_it_could_be(empty_fleet(world, run), groups)
    return sorted({place_of(domain) for domain in room.domains()})


def _where_it_could_be(room: Room, groups: list[int]) -> Room:
    """Return the room of the locations that could hold all groups, or at least one group if the
    groups may be in several locations."""
    places = {place_of(domain) for domain in room.domains()}
    is_split = (room.run.spread and len(places) > 1) or room.run.is_sweep
    some = groups[:1] if is_split else groups
    found = [
        place
        for place in places
        if put_all(room.copy(), some, [d for d in room.domains() if place_of(d) == place], [])
    ]
    return room.only_in([d for d in room.domains() if place_of(d) in (found or places)])


def avoided(run: Run) -> list[str]:
    """Return the nodes that rejected a part of the run that has not been bound since."""
    return sorted({name for unit in run.units.values() for name in unit.avoids})


def admit(
    calendar: Calendar,
    groups: list[int],
    at: int,
    *,
    fill: bool = False,
    without: frozenset[str] = frozenset(),
    open_until: int = 0,
) -> Placement | Refusal:
    """P4: return the first placement with payers and GPUs; avoided nodes come last."""

    def pay(gpus: int, place: Place, taken: list[Segment]) -> Bill:
        return cover(
            calendar, gpus, place, at=at, taken=taken, without=without, open_until=open_until
        )

    room = room_for(calendar, at, fill=fill)
    if room.avoids:
        elsewhere = room.copy()
        elsewhere.bins = {k: n for k, n in room.bins.items() if k[0] not in room.avoids}
        found = place_and_pay(elsewhere, groups, pay)
        if isinstance(found, Placement):
            return found
    found = place_and_pay(room, groups, pay)
    if isinstance(found, Refusal) and not found.of_money and found.reason != "NoSuchFlavor":
        found.reason = _why_no_room(calendar, groups, at, pay)
    return found


def place_and_pay(
    room: Room, groups: list[int], pay: Pay, places: list[Place] | None = None
) -> Placement | Refusal:
    """P2, P4: place all groups in one location if one can hold them; otherwise group by group."""
    world, run = room.world, room.run
    home = own_domains(world, run)
    places = places_of(world, run) if places is None else places
    gpus = len(groups) * room.gpus_of_group()
    if not places:
        return Refusal("NoSuchFlavor", of_money=False)
    bills = {place: pay(gpus, place, []) for place in places}
    if run.is_sweep and not run.spread:  # G3
        paid = [d for d in room.domains() if not bills[place_of(d)].missing]
        room = room.only_in(home or _with_most_groups(room.only_in(paid)))
    found: list[tuple[tuple[object, ...], list[Spot], Place]] = []
    for place in [each for each in places if not bills[each].missing]:
        trial = room.copy()
        spots = put_all(trial, groups, [d for d in room.domains() if place_of(d) == place], home)
        if spots is not None:
            used = {room.domain_of(spot.node) for spot in spots}
            away = bool(home) and not used <= set(home)
            left = sum(trial.left_in(domain) for domain in used)
            money = (bills[place].by("Borrowed"), bills[place].by("Shared"))
            tight = (0, 0) if room.is_for_filler else (len(used) > 1, left)
            found.append(((away, *money, *tight, place), spots, place))
    if found:
        _, spots, place = min(found, key=lambda each: each[0])
        return Placement(spots, {place: bills[place].segments})
    refusal = _no_money(bills)
    if run.spread and len(groups) > 1 and len(places) > 1 and not room.is_for_filler:
        several = _over_locations(room, groups, pay, home)
        if several is not None:
            return several
        anywhere_else = room.copy()
        anywhere_else.bins = dict.fromkeys(room.bins, 1 << 20)
        if refusal and _over_locations(anywhere_else, groups, pay, home) is not None:
            refusal = None  # several locations together could pay
    return refusal or Refusal("InsufficientCapacity", of_money=False)


def put_all(
    room: Room, groups: list[int], domains: list[str], home: list[str]
) -> list[Spot] | None:
    """P2: place all groups in the domain that the run already uses; otherwise in one that holds
    all, preferring the one with the least left over; otherwise group by group, first in the domains
    that it uses."""

    def rank(domain: str) -> tuple[bool, int, str]:
        left = room.pods_in(domain) if room.is_for_filler else room.left_in(domain)
        return (domain not in home, left, domain)

    together = [d for d in domains if room.groups_in(d) >= len(groups)]
    if together and (not home or min(together, key=rank) in home):
        best = min(together, key=rank)
        return [spot for group in groups for spot in room.put(group, best)]
    if not room.run.spread and not room.run.is_sweep:
        return None
    spots: list[Spot] = []
    for group in groups:
        fitting = [domain for domain in domains if room.groups_in(domain)]
        if not fitting:
            return None
        spots += room.put(group, min(fitting, key=rank))
    return spots


def _with_most_groups(room: Room) -> list[str]:
    """G3: of the domains where most of the waiting groups fit, return the one with the least left
    over."""
    waiting = sum(1 for unit in room.run.units.values() if unit.standing == "waiting")
    most = {d: min(waiting, room.groups_in(d)) for d in room.domains()}
    best = min(most, key=lambda d: (-most[d], room.left_in(d), d), default=None)
    return [] if best is None else [best]


def _over_locations(
    room: Room, groups: list[int], pay: Pay, home: list[str], before: Placement | None = None
) -> Placement | None:
    """Place group by group, each in the location with the least borrowed, then the least shared
    money; if that leaves nothing for the groups after it, in the next location."""
    before = before or Placement()
    if not groups:
        return before
    places = sorted({place_of(domain) for domain in room.domains()})
    bills = {place: pay(room.gpus_of_group(), place, before.segments()) for place in places}
    ranks: dict[Place, tuple[bool, int, int, int, str]] = {}
    for domain in room.domains():
        place = place_of(domain)
        if not bills[place].missing and room.groups_in(domain):
            money = (bills[place].by("Borrowed"), bills[place].by("Shared"))
            rank = (domain not in home, *money, room.left_in(domain), domain)
            ranks[place] = min(ranks.get(place, rank), rank)
    for place, rank in sorted(ranks.items(), key=lambda each: each[1]):
        trial = room.copy()
        spots = [*before.spots, *trial.put(groups[0], rank[-1])]
        paid = {**before.bills, place: [*before.bills.get(place, []), *bills[place].segments]}
        found = _over_locations(trial, groups[1:], pay, home, Placement(spots, paid))
        if found is not None:
            return found
    return None


def _no_money(bills: dict[Place, Bill]) -> Refusal | None:
    """C7: if no location has payers, return the first reason, preferring one that may pass."""
    if any(not bill.missing for bill in bills.values()):
        return None
    first = next((bill for bill in bills.values() if bill.may_pass), next(iter(bills.values())))
    return Refusal(first.reason, of_money=True)


def _why_no_room(calendar: Calendar, groups: list[int], at: int, pay: Pay) -> str:
    """Return the reason: the free GPUs are reserved, fragmented, or too few."""
    bare = Calendar(calendar.world, calendar.run, [])
    bare.entries, bare.ends, bare.leases = [], calendar.ends, calendar.leases
    room = room_for(bare, at)
    if isinstance(place_and_pay(room, groups, pay), Placement):
        return "HeldForReservation"
    gpus = len(groups) * room.gpus_of_group()
    places = {place_of(domain) for domain in room.domains()}
    paid = {place for place in places if not pay(gpus, place, []).missing} or places
    room = room.only_in([domain for domain in room.domains() if place_of(domain) in paid])
    enough = sum(room.bins.values()) >= len(groups) * room.gpus_of_group()
    return "NoDomainFits" if enough else "InsufficientCapacity"
