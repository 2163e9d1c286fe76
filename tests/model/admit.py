"""admit: cover and pack together. The first plan that is both funded and placed wins.

Locations are tried in the order cover would pay in: least borrowed, then least shared, then the one
that leaves less over, then by name. One location for the whole run if one can hold it; otherwise,
if groups may spread, group by group.
"""

from dataclasses import dataclass, field

from tests.model.money import Bill, Segment, cover
from tests.model.places import Room, Spot, may_go, room_for
from tests.model.view import View, end_of
from tests.model.world import Lease, Node, Run, World

Place = tuple[str, str]


@dataclass
class Plan:
    """Who runs where, and who pays for it in each location."""

    spots: list[Spot] = field(default_factory=list)
    bills: dict[Place, list[Segment]] = field(default_factory=dict)

    def segments(self) -> list[Segment]:
        return [segment for bill in self.bills.values() for segment in bill]


@dataclass
class Refusal:
    reason: str
    of_money: bool
    walk: list[tuple[str, object]] = field(default_factory=list)


def place_of(domain: str) -> Place:
    region, cluster, _ = domain.split("/")
    return (region, cluster)


def own_domains(world: World, run: Run) -> list[str]:
    """Where the run is already, what is on its way out apart."""
    return sorted({world.nodes[lease.node].domain for lease in staying(world, run)})


def staying(world: World, run: Run) -> list[Lease]:
    return [lease for lease in world.leases_of(run) if not lease.ending]


def borrowed_by(world: World, run: Run) -> int:
    return sum(x.gpus for x in world.leases_of(run) if x.relation == "Borrowed")


def admit(
    view: View,
    run: Run,
    groups: list[int],
    *,
    until: int | None = None,
    fill: bool = False,
    avoids: list[str] | None = None,
    roomy: bool = False,
) -> Plan | Refusal:
    """After a rejected bind the rejecting node is used only if nothing else fits anywhere.

    `roomy`: only where all of a sweep that may not spread can be one day.
    """
    if avoids:
        room = room_for(view, run, until=until, fill=fill, avoids=avoids, shun=True)
        plan = admit_in(view, run, groups, room, until=until, roomy=roomy, fill=fill)
        if isinstance(plan, Plan):
            return plan
    room = room_for(view, run, until=until, fill=fill, avoids=avoids)
    return admit_in(view, run, groups, room, until=until, roomy=roomy, fill=fill)


def admit_in(
    view: View,
    run: Run,
    groups: list[int],
    room: Room,
    *,
    until: int | None = None,
    roomy: bool = False,
    fill: bool = False,
) -> Plan | Refusal:
    world = view.world
    until = end_of(run, view.at) if until is None else until
    home = own_domains(world, run) if run.is_sweep else []
    if run.is_sweep and not run.spread:
        where = home or (_where_all_can_be(run, room) if roomy else room.domains())
        if where:
            room = room.only_in(where)
    places = places_of(world, run)
    wanted = len(groups) * room.gpus_of_group()
    if not places:  # nobody has its domain: it is told so, if it has the money
        anywhere = sorted({n.place for n in world.nodes.values() if _is_there(run, n)})
        bills = {place: _cover(view, run, wanted, place, until) for place in anywhere}
        no_money = _no_money(bills, anywhere) if anywhere else None
        return no_money or Refusal("NoSuchFlavor", of_money=False)
    bills = {place: _cover(view, run, wanted, place, until) for place in places}
    if fill:
        return _filled(groups, room, bills, home) or Refusal("InsufficientCapacity", of_money=False)
    whole = _whole(groups, room.only_in(home) if home else room, bills, together=bool(home))
    if whole is not None:
        return whole
    refusal = _no_money(bills, places)
    if run.spread and (home or (len(groups) > 1 and len(places) > 1)):
        plan = _group_by_group(view, run, groups, room, until, home)
        if isinstance(plan, Plan):
            return plan
        if refusal is not None:  # in one place; over several there may be money enough
            anywhere = room.copy()
            anywhere.bins = dict.fromkeys(room.bins, 1 << 20)
            if isinstance(_group_by_group(view, run, groups, anywhere, until, home), Plan):
                refusal = None
    funded = [place for place in places if not bills[place].missing]
    return refusal or _no_room(view, run, groups, funded or places, until)


def _where_all_can_be(run: Run, room: Room) -> list[str]:
    """A sweep that may not spread begins where all of it can be, if there is such a domain."""
    to_come = sum(1 for unit in run.units.values() if unit.standing == "waiting")
    return [domain for domain in room.domains() if room.holds(domain, to_come)]


def _cover(view: View, run: Run, wanted: int, place: Place, until: int) -> Bill:
    loans = borrowed_by(view.world, run)
    return cover(view, run, wanted, place, until=until, borrowed=loans)


def _is_there(run: Run, node: Node) -> bool:
    wanted = run.selector
    here = (wanted.get("region", node.region), wanted.get("cluster", node.cluster))
    return node.flavor == run.flavor and not node.gone and here == node.place


def places_of(world: World, run: Run) -> list[Place]:
    """Every location with a node of its flavor where it may go."""
    return sorted(
        {
            node.place
            for node in world.nodes.values()
            if node.flavor == run.flavor and not node.gone and may_go(world, run, node.name)
        }
    )


def _whole(
    groups: list[int], room: Room, bills: dict[Place, Bill], *, together: bool
) -> Plan | None:
    """All groups in one location: least borrowed, least shared; in one domain if one holds them
    all (they must be `together`), else group by group; where least is left over; by name."""
    found: list[tuple[tuple[int, int, bool, int, Place], list[Spot]]] = []
    for place in (place for place in bills if not bills[place].missing):
        domains = [domain for domain in room.domains() if place_of(domain) == place]
        trial = room.copy()
        spots = put_in(trial, groups, domains)
        used = {room.domain_of[spot.node] for spot in spots or []}
        if spots is not None and not (together and len(used) > 1):
            left = sum(trial.left_in(domain) for domain in used)
            money = (bills[place].by("Borrowed"), bills[place].by("Shared"))
            found.append(((*money, len(used) > 1, left, place), spots))
    if not found:
        return None
    rank, spots = min(found, key=lambda each: each[0])
    return Plan(spots, {rank[-1]: bills[rank[-1]].segments})


def _filled(
    groups: list[int], room: Room, bills: dict[Place, Bill], home: list[str]
) -> Plan | None:
    """On free GPUs and spares of one location: least borrowed, least shared, by name."""
    found: list[tuple[tuple[int, int, Place], list[Spot]]] = []
    for place, bill in bills.items():
        domains = [domain for domain in room.domains() if place_of(domain) == place]
        spots = None if bill.missing else _seat(room.copy(), groups, domains, home)
        if spots is not None:
            found.append(((bill.by("Borrowed"), bill.by("Shared"), place), spots))
    if not found:
        return None
    rank, spots = min(found, key=lambda each: each[0])
    return Plan(spots, {rank[-1]: bills[rank[-1]].segments})


def _seat(room: Room, groups: list[int], domains: list[str], home: list[str]) -> list[Spot] | None:
    """All in the domain with the fewest seats of those that have enough, where the run is already
    first; else group by group so."""

    def rank(domain: str) -> tuple[bool, int, str]:
        return (domain not in home, room.pods_in(domain), domain)

    for domain in sorted(domains, key=rank):
        if room.holds(domain, len(groups)):
            return [spot for group in groups for spot in room.put_group(group, domain)]
    spots: list[Spot] = []
    for group in groups if room.run.spread else []:
        fitting = [domain for domain in domains if room.holds(domain, 1)]
        if not fitting:
            return None
        spots += room.put_group(group, min(fitting, key=rank))
    return spots or None


def put_in(room: Room, groups: list[int], domains: list[str]) -> list[Spot] | None:
    """One domain that holds all, with the least left over; else group by group where the least is
    left over. Ties by name."""
    together = [domain for domain in domains if room.holds(domain, len(groups))]
    if together:
        best = min(together, key=lambda d: (room.left_in(d), d))
        return [spot for group in groups for spot in room.put_group(group, best)]
    if not room.run.spread:
        return None
    spots: list[Spot] = []
    for group in groups:
        fitting = [domain for domain in domains if room.holds(domain, 1)]
        if not fitting:
            return None
        best = min(fitting, key=lambda d: (room.left_in(d), d))
        spots += room.put_group(group, best)
    return spots


def _group_by_group(
    view: View, run: Run, groups: list[int], room: Room, until: int, home: list[str]
) -> Plan | Refusal:
    """Each group where money and GPUs are, in index order, on top of the groups before it; where
    the run is already before anywhere else. If that leaves one group nothing, each goes to the best
    place that leaves something to those after it."""
    found = _seat_one(view, run, groups, room.copy(), until, home, Plan(), somehow=False)
    if isinstance(found, Refusal) and put_in(room.copy(), groups, room.domains()) is not None:
        again = _seat_one(view, run, groups, room.copy(), until, home, Plan(), somehow=True)
        return again if isinstance(again, Plan) else found
    return found


def _seat_one(
    view: View, run: Run, groups: list[int], room: Room, until: int, home: list[str], plan: Plan,
    *, somehow: bool,
) -> Plan | Refusal:  # fmt: skip
    """The first group, and then the others."""
    if not groups:
        return plan
    loans = borrowed_by(view.world, run)
    places = places_of(view.world, run)
    bills = {
        place: cover(
            view, run, room.gpus_of_group(), place,
            until=until, taken=plan.segments(), borrowed=loans,
        )
        for place in places
    }  # fmt: skip
    refusal = _no_money(bills, places)
    if refusal is not None:
        return refusal
    found: list[tuple[bool, int, int, int, str]] = []
    for domain in room.domains():
        bill = bills.get(place_of(domain))
        if bill is not None and not bill.missing and room.holds(domain, 1):
            money = (bill.by("Borrowed"), bill.by("Shared"))
            found.append((domain not in home, *money, room.left_in(domain), domain))
    tried: list[Place] = []
    for *_, best in sorted(found):
        place = place_of(best)
        if place in tried or (tried and not somehow):
            continue  # another domain there has the same money, and room is room
        tried.append(place)
        seats = room.copy()
        spots = seats.put_group(groups[0], best)
        paid = {**plan.bills, place: plan.bills.get(place, []) + bills[place].segments}
        more = Plan([*plan.spots, *spots], paid)
        rest = _seat_one(view, run, groups[1:], seats, until, home, more, somehow=somehow)
        if isinstance(rest, Plan):
            return rest
        refusal = refusal or rest
    return refusal or Refusal("", of_money=False)


def _no_money(bills: dict[Place, Bill], places: list[Place]) -> Refusal | None:
    """If no location is funded: the reason of the first, by name, that time may help."""
    if any(not bills[place].missing for place in places):
        return None
    first = next((place for place in places if bills[place].may_help), places[0])
    return Refusal(bills[first].reason, of_money=True, walk=bills[first].walk)


def _no_room(view: View, run: Run, groups: list[int], places: list[Place], until: int) -> Refusal:
    """Where there is money: nothing is free, nothing fits, or what is free is held for others."""
    free_view = View(view.world, view.at, [], view.gone, resolving=view.resolving)
    free = room_for(free_view, run, until=until)
    free.bins = {k: g for k, g in free.bins.items() if view.world.nodes[k[0]].place in places}
    if put_in(free.copy(), groups, free.domains()) is not None:
        return Refusal("HeldForReservation", of_money=False)
    enough = sum(free.bins.values()) >= len(groups) * free.gpus_of_group()
    return Refusal("NoDomainFits" if enough else "InsufficientCapacity", of_money=False)
