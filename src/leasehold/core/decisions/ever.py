"""ever: whether a run could start if nothing else ran (Q11).

Called for a refused run, before its start is planned: no ending lease helps if all nodes together
could not hold it or all budgets not pay for it. Nodes count with their full size, whatever their
state. Changes nothing.
"""

from copy import copy
from typing import Literal, assert_never

from msgspec.structs import replace

from leasehold.core.decisions.admit import Wish, no_such_flavor
from leasehold.core.decisions.funded import paid_on_empty_fleet
from leasehold.core.decisions.pack import Want, candidate_pools
from leasehold.core.facts import Gang, Location
from leasehold.core.names import GROUP
from leasehold.core.units import Instant, format_cpus, format_memory, plural
from leasehold.core.verdicts import Refusal, Refused
from leasehold.core.world.accounts import Accounts
from leasehold.core.world.fleet import Fleet, Pool, Size
from leasehold.core.world.width import locations_for
from leasehold.core.world.world import World

Resource = Literal["GPUs", "CPU", "memory"]


def never_fits(world: World, wish: Wish) -> Refused | None:
    """Return why the existing nodes could not hold the run even if they were empty; None if they
    could."""
    pools = candidate_pools(world.fleet, wish.want, locations_for(world, wish.run.spec))
    if not pools:
        return no_such_flavor(wish.want)
    want = wish.want
    if wish.run.spec.gang is Gang.GROUP:  # its groups may start one after another
        want = replace(want, groups=want.groups[:1])
    return (
        _no_place_for_spares(world.fleet, want, pools)
        or _pod_too_large(world.fleet, want, pools)
        or _too_many(want, pools)
    )


def never_paid(world: World, wish: Wish, empty: Accounts, *, now: Instant) -> Refused | None:
    """Return why its budgets could not pay for the run even if nothing else ran; None if they
    might.

    `empty`: the accounts without open leases.
    """
    flavor = wish.want.flavor
    openings = {
        envelope.start
        for envelope in world.envelopes.values()
        if envelope.flavor == flavor and envelope.start > now
    }
    bare = copy(world)
    bare.accounts = empty
    if wish.run.spec.gang is Gang.GROUP:  # its groups may start one after another
        wish = replace(wish, want=replace(wish.want, groups=wish.want.groups[:1]))
    rooms = could_hold(world, wish)
    first: Refused | None = None
    for at in (now, *sorted(openings)):
        answer = paid_on_empty_fleet(bare, wish, rooms, at=at, now=now)
        if answer is None:
            return None
        first = first or answer
    return first


def could_hold(world: World, wish: Wish) -> dict[Location, int]:
    """Return location -> number of its groups that fit there if it is empty.

    Only locations that could hold the whole run, or one group if the groups may be in several; all
    locations if there are none.
    """
    want, locations = wish.want, locations_for(world, wish.run.spec)
    is_split = (want.spread and len(locations) > 1) or wish.run.spec.gang is Gang.GROUP
    needed = 1 if is_split else len(want.groups)
    rooms = {location: _groups_in(world.fleet, want, location) for location in locations}
    return {place: room for place, room in rooms.items() if room >= needed} or rooms


def _groups_in(fleet: Fleet, want: Want, location: Location) -> int:
    pools = candidate_pools(fleet, want, [location])
    rooms = [
        sum(count * _pods_on(size, want) for size, count in pool.sizes.items())
        // (want.pods + want.spares)
        for pool in pools
    ]
    return sum(rooms) if want.spread else max(rooms, default=0)


def _pod_too_large(fleet: Fleet, want: Want, pools: list[Pool]) -> Refused | None:
    sizes = {size for pool in pools for size in pool.sizes}
    if any(_pods_on(size, want) for size in sizes):
        return None
    asked: dict[Resource, int] = {
        "GPUs": want.pod_gpus,
        "CPU": want.cpu_milli,
        "memory": want.memory_bytes,
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
            f"a pod requests {' and '.join(words)}, and no node with {want.flavor} has all of that"
        )
    else:
        name = _with_most(fleet, pools, short, most[short])
        remedy = (
            f"a pod requests {_words(short, asked[short])}, and the largest node with "
            f"{want.flavor} ({name}) has {_words(short, most[short])}"
        )
    what = "GPUs per pod" if short == "GPUs" else "resources.requests"
    return Refused(
        reason=Refusal.POD_TOO_LARGE,
        remedy=f"{remedy}; request less ({what} in the Run), or add a larger node",
        subject=short or "",
        limit=most[short] if short else 0,
    )


def _too_many(want: Want, pools: list[Pool]) -> Refused | None:
    """Return the refusal if all nodes together are too small; each group must be within one
    domain."""
    per_group = want.pods + want.spares
    pods = [
        sum(count * _pods_on(size, want) for size, count in each.sizes.items()) for each in pools
    ]
    rooms = [room // per_group for room in pods]
    groups = sum(rooms) if want.spread else max(rooms)
    if groups >= len(want.groups):
        return None
    if not max(rooms):
        most = max(pods)
        domain = pools[pods.index(most)].domain
        why = (
            f"a group of {plural(want.gpus_per_group, 'GPU')} must fit in one domain, and the "
            f"largest domain with {want.flavor} ({domain}) has room for {most * want.pod_gpus} "
            f"in pods of {want.pod_gpus}"
        )
        limit = most * want.pod_gpus
    else:
        limit = groups * want.gpus_per_group
        where = "together" if want.spread else "within one domain"
        why = (
            f"the run requests {plural(want.gpus, 'GPU')}, and all nodes with {want.flavor} have "
            f"room for {limit} {where}, in groups of {want.gpus_per_group} and pods of "
            f"{want.pod_gpus}"
        )
    return Refused(
        reason=Refusal.FLEET_TOO_SMALL,
        remedy=f"{why}, even if nothing else ran; request less, or add nodes",
        asked=want.gpus,
        short_by=want.gpus - limit,
        limit=limit,
    )


def _no_place_for_spares(fleet: Fleet, want: Want, pools: list[Pool]) -> Refused | None:
    """Return the refusal if spares are restricted to reserved nodes, and these are too few."""
    if not want.spares or not want.spares_on_reserved:
        return None
    nodes = [[fleet.nodes[name].node for name in pool.nodes] for pool in pools]
    reserved = [[node for node in each if node.is_reserved] for each in nodes]
    rooms = [sum(node.gpus // want.pod_gpus for node in each) // want.spares for each in reserved]
    if (sum(rooms) if want.spread else max(rooms)) >= len(want.groups):
        return None
    spares = want.spares * want.pod_gpus
    return Refused(
        reason=Refusal.NO_PLACE_FOR_SPARES,
        remedy=f"the run requests spares of {plural(spares, 'GPU')} for each group. Other "
        "schedulers do not see spares, so spares need nodes with the taint "
        f"{GROUP}/fleet, which {sum(map(len, reserved))} of {sum(map(len, nodes))} nodes "
        f"with {want.flavor} have: taint more of them (kubectl taint node NODE "
        f"{GROUP}/fleet=:NoSchedule), or leave out sparesPerGroup",
        asked=want.gpus,
        limit=sum(rooms) * spares,
    )


def _pods_on(size: Size, want: Want) -> int:
    """Return how many pods fit on an empty node of this size."""
    room = min(size.gpus // want.pod_gpus, size.pods_max)
    if want.cpu_milli:
        room = min(room, size.cpu_milli // want.cpu_milli)
    if want.memory_bytes:
        room = min(room, size.memory_bytes // want.memory_bytes)
    return room


def _with_most(fleet: Fleet, pools: list[Pool], what: Resource, amount: int) -> str:
    of = {"GPUs": "gpus", "CPU": "cpu_milli", "memory": "memory_bytes"}[what]
    names = (name for pool in pools for name in pool.nodes)
    return min(name for name in names if getattr(fleet.nodes[name].node, of) == amount)


def _words(what: Resource, amount: int) -> str:
    match what:
        case "GPUs":
            return plural(amount, "GPU")
        case "CPU":
            return format_cpus(amount)
        case "memory":
            return f"{format_memory(amount)} of memory"
        case _:
            assert_never(what)
