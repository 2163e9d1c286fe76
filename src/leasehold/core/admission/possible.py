"""possible: decide whether a run could start if nothing else ran (Q11).

Called for a refused run before its start is planned. If all nodes together could not hold it, or
all budgets could not pay for it, waiting does not help. Nodes count in full size, even if dead or
cordoned. Changes nothing.
"""

from copy import copy
from typing import Literal, assert_never

from msgspec.structs import replace

from leasehold.core.admission.admit import no_such_flavor
from leasehold.core.facts import Gang, Location
from leasehold.core.funding.funded import paid_on_empty_fleet
from leasehold.core.names import GROUP
from leasehold.core.placement.pack import candidate_pools
from leasehold.core.requests import PlacementRequest, StartRequest
from leasehold.core.units import Instant, format_cpus, format_memory, plural
from leasehold.core.verdicts import Refusal, Refused
from leasehold.core.world.accounts import Accounts
from leasehold.core.world.fleet import Fleet, Pool, Size
from leasehold.core.world.width import locations_for
from leasehold.core.world.world import World

Resource = Literal["GPUs", "CPU", "memory"]


def never_fits(world: World, request: StartRequest) -> Refused | None:
    """Return why the existing nodes could not hold the run even if they were empty, or None if they
    could."""
    pools = candidate_pools(world.fleet, request.placement, locations_for(world, request.run.spec))
    if not pools:
        return no_such_flavor(request.placement)
    placement = request.placement
    if request.run.spec.gang is Gang.GROUP:  # its groups may start one after another
        placement = replace(placement, groups=placement.groups[:1])
    return (
        _no_place_for_spares(world.fleet, placement, pools)
        or _pod_too_large(world.fleet, placement, pools)
        or _too_many(placement, pools)
    )


def never_paid(
    world: World, request: StartRequest, empty: Accounts, *, now: Instant
) -> Refused | None:
    """Return why no envelopes could pay for the run even if nothing else ran, or None if some
    might.

    `empty`: the accounts as if no lease were open.
    """
    flavor = request.placement.flavor
    openings = {
        envelope.start
        for envelope in world.envelopes.values()
        if envelope.flavor == flavor and envelope.start > now
    }
    bare = copy(world)
    bare.accounts = empty
    if request.run.spec.gang is Gang.GROUP:  # its groups may start one after another
        request = replace(
            request, placement=replace(request.placement, groups=request.placement.groups[:1])
        )
    rooms = could_hold(world, request)
    first: Refused | None = None
    for at in (now, *sorted(openings)):
        answer = paid_on_empty_fleet(bare, request, rooms, at=at, now=now)
        if answer is None:
            return None
        first = first or answer
    return first


def could_hold(world: World, request: StartRequest) -> dict[Location, int]:
    """Return location -> number of the run's groups that fit in the location if it is empty.

    Only locations are returned that could hold the whole run, or one group if the groups may be in
    several locations. If there is no such location, all are returned.
    """
    placement, locations = request.placement, locations_for(world, request.run.spec)
    is_split = (placement.spread and len(locations) > 1) or request.run.spec.gang is Gang.GROUP
    needed = 1 if is_split else len(placement.groups)
    rooms = {location: _groups_in(world.fleet, placement, location) for location in locations}
    return {place: room for place, room in rooms.items() if room >= needed} or rooms


def _groups_in(fleet: Fleet, placement: PlacementRequest, location: Location) -> int:
    """Return how many of the run's groups fit in an empty location."""
    pools = candidate_pools(fleet, placement, [location])
    rooms = [room // (placement.pods + placement.spares) for room in _pods_in(pools, placement)]
    return sum(rooms) if placement.spread else max(rooms, default=0)


def _pod_too_large(fleet: Fleet, placement: PlacementRequest, pools: list[Pool]) -> Refused | None:
    """Return the refusal if not even the largest node could hold one pod."""
    sizes = {size for pool in pools for size in pool.sizes}
    if any(_pods_on(size, placement) for size in sizes):
        return None
    asked: dict[Resource, int] = {
        "GPUs": placement.pod_gpus,
        "CPU": placement.cpu_milli,
        "memory": placement.memory_bytes,
    }
    most: dict[Resource, int] = {
        "GPUs": max(size.gpus for size in sizes),
        "CPU": max(size.cpu_milli for size in sizes),
        "memory": max(size.memory_bytes for size in sizes),
    }
    short = next((each for each in asked if asked[each] > most[each]), None)
    if short is None:
        words = [_words(each, asked[each]) for each in asked if asked[each]]
        remedy = (
            f"a pod requests {' and '.join(words)}, and no node with {placement.flavor} has all "
            "of that"
        )
    else:
        name = _with_most(fleet, pools, short, most[short])
        remedy = (
            f"a pod requests {_words(short, asked[short])}, and the largest node with "
            f"{placement.flavor} ({name}) has {_words(short, most[short])}"
        )
    what = "GPUs per pod" if short == "GPUs" else "resources.requests"
    return Refused(
        reason=Refusal.POD_TOO_LARGE,
        remedy=f"{remedy}; request less ({what} in the Run), or add a larger node",
        subject=short or "",
        limit=most[short] if short else 0,
    )


def _too_many(placement: PlacementRequest, pools: list[Pool]) -> Refused | None:
    """Return the refusal if all nodes together are too small for the run.

    Each group must be within one domain.
    """
    per_group = placement.pods + placement.spares
    pods = _pods_in(pools, placement)
    rooms = [room // per_group for room in pods]
    groups = sum(rooms) if placement.spread else max(rooms)
    if groups >= len(placement.groups):
        return None
    if not max(rooms):
        most = max(pods)
        domain = pools[pods.index(most)].domain
        why = (
            f"a group of {plural(placement.gpus_per_group, 'GPU')} must fit in one domain, and the "
            f"largest domain with {placement.flavor} ({domain}) has room for "
            f"{most * placement.pod_gpus} in pods of {placement.pod_gpus}"
        )
        limit = most * placement.pod_gpus
    else:
        limit = groups * placement.gpus_per_group
        where = "together" if placement.spread else "within one domain"
        why = (
            f"the run requests {plural(placement.gpus, 'GPU')}, and all nodes with "
            f"{placement.flavor} have room for {limit} {where}, in groups of "
            f"{placement.gpus_per_group} and pods of "
            f"{placement.pod_gpus}"
        )
    return Refused(
        reason=Refusal.FLEET_TOO_SMALL,
        remedy=f"{why}, even if nothing else ran; request less, or add nodes",
        asked=placement.gpus,
        short_by=placement.gpus - limit,
        limit=limit,
    )


def _no_place_for_spares(
    fleet: Fleet, placement: PlacementRequest, pools: list[Pool]
) -> Refused | None:
    """Return the refusal if spares are allowed on reserved nodes only, and there are too few of
    them."""
    if not placement.spares or not placement.spares_on_reserved:
        return None
    nodes = [[fleet.nodes[name].node for name in pool.nodes] for pool in pools]
    reserved = [[node for node in each if node.is_reserved] for each in nodes]
    rooms = [
        sum(node.gpus // placement.pod_gpus for node in each) // placement.spares
        for each in reserved
    ]
    if (sum(rooms) if placement.spread else max(rooms)) >= len(placement.groups):
        return None
    spares = placement.spares * placement.pod_gpus
    return Refused(
        reason=Refusal.NO_PLACE_FOR_SPARES,
        remedy=f"the run requests spares of {plural(spares, 'GPU')} for each group. Other "
        "schedulers do not see spares, so spares need nodes with the taint "
        f"{GROUP}/fleet, which {sum(map(len, reserved))} of {sum(map(len, nodes))} nodes "
        f"with {placement.flavor} have: taint more of them (kubectl taint node NODE "
        f"{GROUP}/fleet=:NoSchedule), or leave out sparesPerGroup",
        asked=placement.gpus,
        limit=sum(rooms) * spares,
    )


def _pods_in(pools: list[Pool], placement: PlacementRequest) -> list[int]:
    """Return how many pods fit in each pool if it is empty."""
    sizes = {size for pool in pools for size in pool.sizes}
    each = {size: _pods_on(size, placement) for size in sizes}
    return [sum(count * each[size] for size, count in pool.sizes.items()) for pool in pools]


def _pods_on(size: Size, placement: PlacementRequest) -> int:
    """Return how many pods fit on an empty node of this size."""
    room = min(size.gpus // placement.pod_gpus, size.pods_max)
    if placement.cpu_milli:
        room = min(room, size.cpu_milli // placement.cpu_milli)
    if placement.memory_bytes:
        room = min(room, size.memory_bytes // placement.memory_bytes)
    return room


def _with_most(fleet: Fleet, pools: list[Pool], what: Resource, amount: int) -> str:
    """Return the name of the first node, by name, that has exactly this amount of the resource."""
    of = {"GPUs": "gpus", "CPU": "cpu_milli", "memory": "memory_bytes"}[what]
    names = (name for pool in pools for name in pool.nodes)
    return min(name for name in names if getattr(fleet.nodes[name].node, of) == amount)


def _words(what: Resource, amount: int) -> str:
    """Return an amount of a resource with its unit."""
    match what:
        case "GPUs":
            return plural(amount, "GPU")
        case "CPU":
            return format_cpus(amount)
        case "memory":
            return f"{format_memory(amount)} of memory"
        case _:
            assert_never(what)
