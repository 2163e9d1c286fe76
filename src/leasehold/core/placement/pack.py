"""pack: place a run: whole groups in domains, whole pods on nodes (P1 to P3).

Reads the free GPUs of the fleet, from which the caller has already taken off what plans and holds
keep. Changes nothing: it works in a what-if of its own. Called for starts, grows, forecasts and
preemption.
"""

from collections.abc import Collection, Iterable, Sequence
from hashlib import sha256
from heapq import merge

from leasehold.core.facts import Location, Run
from leasehold.core.names import GROUP
from leasehold.core.requests import PlacementRequest
from leasehold.core.units import format_cpus, format_memory, plural
from leasehold.core.verdicts import Packed, PodPlace, Refusal, Refused
from leasehold.core.world.fleet import Fleet, Pool, Shape
from leasehold.core.world.width import pod_size
from leasehold.core.world.world import World


def placement_request_for(
    world: World,
    run: Run,
    groups: tuple[int, ...],
    *,
    own_domains: tuple[str, ...] = (),
    last: tuple[str, ...] = (),
) -> PlacementRequest:
    """Return the request to place these groups of a run."""
    spec = run.spec
    size = pod_size(world, run)
    return PlacementRequest(
        flavor=spec.flavor,
        groups=groups,
        pods=spec.group_gpus // size,
        spares=spec.spares_per_group // size,
        pod_gpus=size,
        cpu_milli=spec.cpu_milli,
        memory_bytes=spec.memory_bytes,
        spread=spec.spread,
        selector=spec.selector,
        own_domains=own_domains,
        last=last,
        spares_on_reserved=world.policy.spares_on_reserved,
        only=spec.nodes,
    )


_DOMAINS_NAMED = 8  # the most domains that a message names


def pack(
    world: World, placement: PlacementRequest, locations: Sequence[Location]
) -> Packed | Refused:
    """Return places for all groups within these locations, or why not all of them fit."""
    return try_pack(world, placement, locations) or _refusal(world.fleet, placement, locations)


def try_pack(
    world: World, placement: PlacementRequest, locations: Sequence[Location]
) -> Packed | None:
    """Return the places as `pack` does, or None instead of a refusal.

    Wording a refusal is slow, so callers that do not report it use this function.
    """
    assert placement.groups
    fleet = world.fleet
    with world.what_if.opened():
        placed = _place_all(world, placement, locations)
        if placed is not None:
            used = sorted({fleet.nodes[each.node].node.domain for each in placed})
            left = tuple((domain, fleet.pools[(placement.flavor, domain)].free) for domain in used)
    return None if placed is None else _packed(placed, left)


def pack_in_one_domain(
    world: World, placement: PlacementRequest, locations: Sequence[Location]
) -> Packed | None:
    """Return places for all groups in one domain, or None (P2).

    Of the domains that can hold them, the one with the fewest free GPUs is taken.
    """
    with world.what_if.opened():
        pools = _roomy(world.fleet, placement, locations, len(placement.groups))
        placed = _first_fit(world, placement, placement.groups, pools)
        if placed is not None:
            domain = world.fleet.nodes[placed[0].node].node.domain
            left = ((domain, world.fleet.pools[(placement.flavor, domain)].free),)
    return None if placed is None else _packed(placed, left)


def fits(world: World, placement: PlacementRequest, locations: Sequence[Location]) -> bool:
    """Return whether all groups can be placed."""
    with world.what_if.opened():
        placed = _place_all(world, placement, locations)
    return placed is not None


def _packed(placed: list[PodPlace], left: tuple[tuple[str, int], ...]) -> Packed:
    """Return the places as a `Packed`, with a digest of them.

    `left`: free GPUs that are left in each domain used.
    """
    text = "\n".join(f"{p.group} {p.index} {p.node} {p.spare:d} {p.gpus}" for p in placed)
    return Packed(places=tuple(placed), left_over=left, plan_hash=sha256(text.encode()).hexdigest())


def pods_room(fleet: Fleet, pool: Pool, shape: Shape) -> int:
    """Return how many pods of this shape the pool can take."""
    if not shape.cpu_milli and not shape.memory_bytes and not fleet.crowded:
        return pool.room(shape.gpus)
    return sum(fleet.nodes[name].holds(shape) for name in pool.nodes)


def shape_of(placement: PlacementRequest) -> Shape:
    return Shape(placement.pod_gpus, placement.cpu_milli, placement.memory_bytes)


def candidate_pools(
    fleet: Fleet, placement: PlacementRequest, locations: Iterable[Location]
) -> list[Pool]:
    """Return the pools that the run may use, fewest free GPUs first, ties by name."""
    found: list[tuple[int, str]] = []
    for region, cluster in locations:
        found.extend(fleet.by_free(placement.flavor, region, cluster))
    found.sort()
    pools = [fleet.pools[(placement.flavor, domain)] for _, domain in found]
    return [pool for pool in pools if _selected(pool, placement)]


def _selected(pool: Pool, placement: PlacementRequest) -> bool:
    """Return whether the run may use the domain, by its selector and by `within`."""
    if placement.within and pool.domain not in placement.within:
        return False
    domain = placement.selector.domain
    return domain is None or pool.domain.rpartition("/")[2] == domain


def _place_all(
    world: World, placement: PlacementRequest, locations: Sequence[Location]
) -> list[PodPlace] | None:
    """Place all groups by P2, or return None if some group does not fit.

    Tries one of the run's own domains for all groups; if the run has none, any domain that holds
    all groups. Then places group by group, own domains first.
    The caller must hold an open what-if: on success the pods stay planned in it.
    """
    fleet = world.fleet
    own = [
        fleet.pools[(placement.flavor, domain)]
        for domain in sorted(placement.own_domains)
        if (placement.flavor, domain) in fleet.pools
    ]
    own = [pool for pool in own if pool.home[1:] in locations and _selected(pool, placement)]
    own.sort(key=lambda pool: (pool.free, pool.domain))
    whole = _first_fit(world, placement, placement.groups, own)
    if whole is None and not placement.own_domains:
        whole = _first_fit(
            world,
            placement,
            placement.groups,
            _roomy(fleet, placement, locations, len(placement.groups)),
        )
    if whole is not None or not placement.spread:
        return whole
    placed: list[PodPlace] = []
    for group in placement.groups:
        own.sort(key=lambda pool: (pool.free, pool.domain))
        one = _first_fit(world, placement, (group,), own)
        if one is None:
            one = _first_fit(world, placement, (group,), _roomy(fleet, placement, locations, 1))
        if one is None:
            return None
        placed.extend(one)
    return placed


def _roomy(
    fleet: Fleet, placement: PlacementRequest, locations: Sequence[Location], groups: int
) -> Iterable[Pool]:
    """Yield the domains with enough free GPUs for `groups` groups, fewest free GPUs first."""
    needed = placement.gpus_per_group * groups
    tails = []
    for location in locations:
        order = fleet.by_free(placement.flavor, *location)
        # Copy the list: placing a pod changes `order` while the caller is still iterating.
        tails.append(order[_first_with(order, needed) :])
    for _, domain in merge(*tails) if len(tails) > 1 else tails[0] if tails else ():
        pool = fleet.pools[(placement.flavor, domain)]
        if _selected(pool, placement):
            yield pool


def _first_with(order: list[tuple[int, str]], needed: int) -> int:
    """Return the first index of `order` with at least `needed` free GPUs, by bisection."""
    low, high = 0, len(order)
    while low < high:
        middle = (low + high) // 2
        if order[middle][0] < needed:
            low = middle + 1
        else:
            high = middle
    return low


def _first_fit(
    world: World, placement: PlacementRequest, groups: tuple[int, ...], pools: Iterable[Pool]
) -> list[PodPlace] | None:
    """Place all groups in the first of these domains that can hold them, or return None."""
    per_group = placement.pods + placement.spares
    for pool in pools:
        world.steps.take()
        if pool.room(placement.pod_gpus) < per_group * len(groups):
            continue
        placed = _fill(world, placement, groups, pool)
        if placed is not None:
            return placed
    return None


def _fill(
    world: World, placement: PlacementRequest, groups: tuple[int, ...], pool: Pool
) -> list[PodPlace] | None:
    """Place all groups in one domain, or return None.

    The caller must hold an open what-if: on success the pods stay planned in it.
    """
    fleet = world.fleet
    shape = shape_of(placement)
    last = frozenset(placement.last)
    placed: list[PodPlace] = []
    # If only some nodes may hold spares, pods use those nodes only if there are no others.
    kept, barred = _for_spares(fleet, placement, pool)
    unreached = frozenset() if placement.only is None else frozenset(pool.nodes) - placement.only
    for group in groups:
        mine: set[str] = set()
        for order in range(placement.pods + placement.spares):
            spare = order >= placement.pods
            if spare:
                name = best_node(fleet, pool, shape, last, mine, never=barred | unreached)
            else:
                name = best_node(fleet, pool, shape, last, kept, never=unreached)
            if name is None:
                for each in placed:  # undo: CPU, memory or the pod count ran out before GPUs did
                    fleet.unplan(each.node, shape)
                return None
            if not spare:
                mine.add(name)
            fleet.plan_pod(name, shape)
            index = order - placement.pods if spare else order
            placed.append(
                PodPlace(group=group, index=index, node=name, gpus=shape.gpus, spare=spare)
            )
    return placed


def _for_spares(
    fleet: Fleet, placement: PlacementRequest, pool: Pool
) -> tuple[frozenset[str], frozenset[str]]:
    """Return the nodes that may and may not hold spares; both empty if there is no restriction."""
    if not placement.spares or not placement.spares_on_reserved:
        return frozenset(), frozenset()
    reserved = frozenset(name for name in pool.nodes if fleet.nodes[name].node.is_reserved)
    return reserved, frozenset(pool.nodes) - reserved


def best_node(
    fleet: Fleet,
    pool: Pool,
    shape: Shape,
    last: Collection[str],
    rather_not: Collection[str] = (),
    *,
    never: Collection[str] = (),
) -> str | None:
    """Return the best node for a pod, or None (P3).

    Nodes in use come before empty ones, then the one with the fewest free GPUs. Nodes in
    `rather_not` are chosen only if there is no other, those in `last` only after them, and those in
    `never` not at all. Example: a pod of 2 GPUs and nodes a (8 free, empty), b (3 free) and c (2
    free): c, otherwise b, otherwise a.
    """
    best: tuple[bool, bool, str] | None = None
    gpus = shape.gpus
    for bucket in sorted((each for each in pool.buckets if each >> 1 >= gpus), key=_use_first):
        for name in pool.buckets[bucket]:
            fleet.steps.take()
            if name not in never and fleet.nodes[name].holds(shape):
                if name not in last and name not in rather_not:
                    return name
                rank = (name in last, name in rather_not, name)
                best = rank if best is None or rank[:2] < best[:2] else best
    return None if best is None else best[2]


def _use_first(bucket: int) -> tuple[int, int]:
    """Return the sort key of buckets of nodes: nodes in use first, then the fewest free GPUs.

    A bucket's number is 2 x its nodes' free GPUs, plus 1 if these nodes are empty.
    """
    return bucket & 1, bucket >> 1


def _refusal(fleet: Fleet, placement: PlacementRequest, locations: Sequence[Location]) -> Refused:
    """Return why the groups do not fit: the first of several explanations that applies."""
    pools = candidate_pools(fleet, placement, locations)
    if not pools:
        where = " or ".join(f"{region}/{cluster}" for region, cluster in locations) or "the fleet"
        return Refused(
            reason=Refusal.NO_SUCH_FLAVOR,
            remedy=f"no node with {placement.flavor} in {where}; "
            "check gpuType and locality.selector",
            asked=placement.gpus,
            short_by=placement.gpus,
        )
    free = sum(pool.free for pool in pools)
    if placement.only is not None and free >= placement.gpus and _has_gpus(placement, pools):
        return _out_of_reach(fleet, placement, pools)
    if (
        placement.spares
        and placement.spares_on_reserved
        and free >= placement.gpus
        and _has_gpus(placement, pools)
    ):
        return _no_place_for_spares(fleet, placement, pools)
    asks_more = bool(placement.cpu_milli or placement.memory_bytes or fleet.crowded)
    if asks_more and free >= placement.gpus and _has_gpus(placement, pools):
        return _short_of_others(fleet, placement, pools)
    if free >= placement.gpus:
        holes = ", ".join(
            f"{pool.domain} {pool.free} with at most {_largest_hole(pool)} on a node"
            for pool in pools[-_DOMAINS_NAMED:]
        )
        return Refused(
            reason=Refusal.NO_DOMAIN_FITS,
            now=f"{_are_free(free)}: {holes}",
            remedy="enough GPUs are free, but no single domain can hold a group of "
            f"{placement.gpus_per_group} in pods of {placement.pod_gpus}; smaller groups or pods "
            "would fit sooner",
            asked=placement.gpus,
            limit=free,
            subject=pools[-1].domain,
        )
    return Refused(
        reason=Refusal.CAPACITY,
        remedy=f"{_too_few(placement.gpus)} free; wait for leases to end",
        now=f"{_are_free(free)} of the {placement.gpus} requested",
        asked=placement.gpus,
        short_by=placement.gpus - free,
        limit=free,
    )


def _are_free(count: int) -> str:
    return f"{plural(count, 'GPU')} {'is' if count == 1 else 'are'} free"


def _largest_hole(pool: Pool) -> int:
    """Return the most GPUs that are free on one node of the domain."""
    return max((bucket >> 1 for bucket, names in pool.buckets.items() if names), default=0)


def _too_few(asked: int) -> str:
    return "no GPU is" if asked == 1 else f"fewer than {asked} GPUs are"


def _out_of_reach(fleet: Fleet, placement: PlacementRequest, pools: Sequence[Pool]) -> Refused:
    """Return the refusal if enough GPUs are free, but too few on nodes that can reach the run's
    volumes."""
    assert placement.only is not None, "whoever has no such volumes is not asked"
    names = [name for pool in pools for name in pool.nodes if name in placement.only]
    free = sum(fleet.nodes[name].free for name in names)
    return Refused(
        reason=Refusal.CAPACITY,
        remedy=f"its volumes are reachable from {plural(len(names), 'node')} with "
        f"{placement.flavor}, where {_too_few(placement.gpus)} free; wait for leases to end, or "
        "use volumes that more nodes can reach",
        now=f"{_are_free(free)} there",
        asked=placement.gpus,
        limit=free,
    )


def _no_place_for_spares(
    fleet: Fleet, placement: PlacementRequest, pools: Sequence[Pool]
) -> Refused:
    """Return the refusal if enough GPUs are free, but too few on nodes that may hold spares."""
    states = [fleet.nodes[name] for pool in pools for name in pool.nodes]
    free = sum(state.free for state in states if state.node.is_reserved)
    asked = placement.spares * placement.pod_gpus * len(placement.groups)
    return Refused(
        reason=Refusal.CAPACITY,
        remedy=f"{plural(asked, 'GPU')} of this run {'is' if asked == 1 else 'are'} for spares. "
        f"Spares need nodes with the taint {GROUP}/fleet, and too few GPUs are free "
        "there; wait for leases to end, or taint more nodes",
        now=f"{_are_free(free)} on those nodes",
        asked=placement.gpus,
        limit=free,
    )


def _has_gpus(placement: PlacementRequest, pools: Sequence[Pool]) -> bool:
    """Return whether the request would fit if pods needed only GPUs."""
    per_group = placement.pods + placement.spares
    rooms = [pool.room(placement.pod_gpus) // per_group for pool in pools]
    return (sum(rooms) if placement.spread else max(rooms)) >= len(placement.groups)


def _short_of_others(fleet: Fleet, placement: PlacementRequest, pools: Sequence[Pool]) -> Refused:
    """Return the refusal if enough GPUs are free, but not enough CPU, memory or pods on the same
    nodes."""
    states = [fleet.nodes[name] for pool in pools for name in pool.nodes]
    states = [state for state in states if state.free >= placement.pod_gpus]
    asked = {"CPU": placement.cpu_milli, "memory": placement.memory_bytes, "pods": 1}
    left = {
        "CPU": {each.node.name: each.node.cpu_milli - each.cpu_used for each in states},
        "memory": {each.node.name: each.node.memory_bytes - each.memory_used for each in states},
        "pods": {each.node.name: each.node.pods_max - each.pods_used for each in states},
    }
    gpus = {each.node.name: each.free // placement.pod_gpus for each in states}
    rooms = {
        what: sum(min(gpus[name], max(0, most) // amount) for name, most in left[what].items())
        for what, amount in asked.items()
        if amount
    }
    what = min(rooms, key=lambda each: rooms[each])
    name, most = max(left[what].items(), key=lambda each: (each[1], each[0]))
    return Refused(
        reason=Refusal.NODE_RESOURCES,
        remedy=f"enough GPUs are free, but on their nodes {_lack(placement, what)}; request less, "
        "or wait for leases to end",
        now=f"{_are_free(sum(pool.free for pool in pools))}; among the nodes with "
        f"{plural(placement.pod_gpus, 'free GPU')}, {name} has the most: "
        f"{_amount(what, max(0, most))} left",
        asked=placement.gpus,
        limit=max(0, most),
        subject=name,
    )


def _lack(placement: PlacementRequest, what: str) -> str:
    """Return in words what the nodes lack: pods, CPU or memory."""
    if what == "pods":
        return "no more pods fit"
    amount = placement.cpu_milli if what == "CPU" else placement.memory_bytes
    return f"there is too little {what} left: a pod requests {_amount(what, amount)}"


def _amount(what: str, amount: int) -> str:
    if what == "pods":
        return f"room for {plural(amount, 'pod')}"
    return format_cpus(amount) if what == "CPU" else format_memory(amount)
