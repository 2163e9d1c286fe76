"""pack: place a run, whole groups in domains and whole pods on nodes (P1 to P4).

Reads the free counts of the fleet, from which holds and what-ifs are already subtracted. Changes
nothing: it works in a what-if of its own. Called by `admit`, `forecast`, `resolve` and `resize`.
"""

from collections.abc import Collection, Iterable, Sequence
from hashlib import sha256
from heapq import merge

from leasehold.core.facts import Location, Record, Run, Selector
from leasehold.core.names import GROUP
from leasehold.core.units import format_cpus, format_memory, plural
from leasehold.core.verdicts import Packed, PodPlace, Refusal, Refused
from leasehold.core.world.fleet import Fleet, Pool, Shape
from leasehold.core.world.width import pod_size
from leasehold.core.world.world import World


class Want(Record):
    """The groups to place: their indices, pods, spares and pod shape, and where they may go."""

    flavor: str
    groups: tuple[int, ...]
    pods: int  # per group
    spares: int  # per group, counted in pods
    pod_gpus: int
    cpu_milli: int = 0
    memory_bytes: int = 0
    spread: bool = True
    selector: Selector = Selector()
    own_domains: tuple[str, ...] = ()  # domains that the run already uses; preferred (P2)
    last: tuple[str, ...] = ()  # nodes that rejected a bind of this attempt: tried last (P3)
    within: tuple[str, ...] = ()  # only these domains; set by a resolution
    spares_on_reserved: bool = False  # spares only on nodes that other schedulers leave alone
    only: frozenset[str] | None = None  # only these nodes, because others cannot reach its volumes

    @property
    def gpus_per_group(self) -> int:
        return (self.pods + self.spares) * self.pod_gpus

    @property
    def gpus(self) -> int:
        return self.gpus_per_group * len(self.groups)


def wanted(
    world: World,
    run: Run,
    groups: tuple[int, ...],
    *,
    own_domains: tuple[str, ...] = (),
    last: tuple[str, ...] = (),
) -> Want:
    """Return the request to place these groups of a run."""
    spec = run.spec
    size = pod_size(world, run)
    return Want(
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


_DOMAINS_NAMED = 8  # in words for a person


def pack(world: World, want: Want, locations: Sequence[Location]) -> Packed | Refused:
    """Return a place for all groups within these locations, or why there is none; never for a
    part."""
    return try_pack(world, want, locations) or _refusal(world.fleet, want, locations)


def try_pack(world: World, want: Want, locations: Sequence[Location]) -> Packed | None:
    """Return the same as `pack`, but None instead of a refusal."""
    assert want.groups
    fleet = world.fleet
    with world.what_if.opened():
        placed = _place_all(world, want, locations)
        if placed is not None:
            used = sorted({fleet.nodes[each.node].node.domain for each in placed})
            left = tuple((domain, fleet.pools[(want.flavor, domain)].free) for domain in used)
    return None if placed is None else _packed(placed, left)


def pack_in_one_domain(world: World, want: Want, locations: Sequence[Location]) -> Packed | None:
    """Return all groups in the tightest domain of these locations that can hold them, or None."""
    with world.what_if.opened():
        pools = _roomy(world.fleet, want, locations, len(want.groups))
        placed = _first_fit(world, want, want.groups, pools)
        if placed is not None:
            domain = world.fleet.nodes[placed[0].node].node.domain
            left = ((domain, world.fleet.pools[(want.flavor, domain)].free),)
    return None if placed is None else _packed(placed, left)


def fits(world: World, want: Want, locations: Sequence[Location]) -> bool:
    """Return whether all groups can be placed."""
    with world.what_if.opened():
        placed = _place_all(world, want, locations)
    return placed is not None


def _packed(placed: list[PodPlace], left: tuple[tuple[str, int], ...]) -> Packed:
    text = "\n".join(f"{p.group} {p.index} {p.node} {p.spare:d} {p.gpus}" for p in placed)
    return Packed(places=tuple(placed), left_over=left, plan_hash=sha256(text.encode()).hexdigest())


def pods_room(fleet: Fleet, pool: Pool, shape: Shape) -> int:
    """Return how many pods of this shape the pool can take."""
    if not shape.cpu_milli and not shape.memory_bytes and not fleet.crowded:
        return pool.room(shape.gpus)
    return sum(fleet.nodes[name].holds(shape) for name in pool.nodes)


def shape_of(want: Want) -> Shape:
    return Shape(want.pod_gpus, want.cpu_milli, want.memory_bytes)


def candidate_pools(fleet: Fleet, want: Want, locations: Iterable[Location]) -> list[Pool]:
    """Return the pools that the run may use, fewest free GPUs first, ties by name."""
    found: list[tuple[int, str]] = []
    for region, cluster in locations:
        found.extend(fleet.by_free(want.flavor, region, cluster))
    found.sort()
    pools = [fleet.pools[(want.flavor, domain)] for _, domain in found]
    return [pool for pool in pools if _selected(pool, want)]


def _selected(pool: Pool, want: Want) -> bool:
    if want.within and pool.domain not in want.within:
        return False
    domain = want.selector.domain
    return domain is None or pool.domain.rpartition("/")[2] == domain


def _place_all(world: World, want: Want, locations: Sequence[Location]) -> list[PodPlace] | None:
    """Place all groups by P2, or return None if some group does not fit.

    Tries one of the run's own domains for all groups; if the run has none, any domain that holds
    all groups; then group by group, in own domains first.
    """
    fleet = world.fleet
    own = [
        fleet.pools[(want.flavor, domain)]
        for domain in sorted(want.own_domains)
        if (want.flavor, domain) in fleet.pools
    ]
    own = [pool for pool in own if pool.home[1:] in locations and _selected(pool, want)]
    own.sort(key=lambda pool: (pool.free, pool.domain))
    whole = _first_fit(world, want, want.groups, own)
    if whole is None and not want.own_domains:
        whole = _first_fit(
            world, want, want.groups, _roomy(fleet, want, locations, len(want.groups))
        )
    if whole is not None or not want.spread:
        return whole
    placed: list[PodPlace] = []
    for group in want.groups:
        own.sort(key=lambda pool: (pool.free, pool.domain))
        one = _first_fit(world, want, (group,), own)
        if one is None:
            one = _first_fit(world, want, (group,), _roomy(fleet, want, locations, 1))
        if one is None:
            return None
        placed.extend(one)
    return placed


def _roomy(fleet: Fleet, want: Want, locations: Sequence[Location], groups: int) -> Iterable[Pool]:
    """Yield pools with enough free GPUs for `groups` groups, tightest first, found by bisection."""
    needed = want.gpus_per_group * groups
    tails = []
    for location in locations:
        order = fleet.by_free(want.flavor, *location)
        # A copy: placing a pod re-files its pool while the caller is still iterating.
        tails.append(order[_first_with(order, needed) :])
    for _, domain in merge(*tails) if len(tails) > 1 else tails[0] if tails else ():
        pool = fleet.pools[(want.flavor, domain)]
        if _selected(pool, want):
            yield pool


def _first_with(order: list[tuple[int, str]], needed: int) -> int:
    low, high = 0, len(order)
    while low < high:
        middle = (low + high) // 2
        if order[middle][0] < needed:
            low = middle + 1
        else:
            high = middle
    return low


def _first_fit(
    world: World, want: Want, groups: tuple[int, ...], pools: Iterable[Pool]
) -> list[PodPlace] | None:
    per_group = want.pods + want.spares
    for pool in pools:
        world.steps.take()
        if pool.room(want.pod_gpus) < per_group * len(groups):
            continue
        placed = _fill(world, want, groups, pool)
        if placed is not None:
            return placed
    return None


def _fill(world: World, want: Want, groups: tuple[int, ...], pool: Pool) -> list[PodPlace] | None:
    """Place all groups in one pool, or return None. The caller must hold an open what-if: on
    success the pods stay planned in it."""
    fleet = world.fleet
    shape = shape_of(want)
    last = frozenset(want.last)
    placed: list[PodPlace] = []
    # If only some nodes may hold spares, pods use those nodes only if there are no others.
    kept, barred = _for_spares(fleet, want, pool)
    unreached = frozenset() if want.only is None else frozenset(pool.nodes) - want.only
    for group in groups:
        mine: set[str] = set()
        for order in range(want.pods + want.spares):
            spare = order >= want.pods
            if spare:
                name = best_node(fleet, pool, shape, last, mine, never=barred | unreached)
            else:
                name = best_node(fleet, pool, shape, last, kept, never=unreached)
            if name is None:
                for each in placed:  # CPU, memory or the pod count ran out before the GPUs did
                    fleet.unplan(each.node, shape)
                return None
            if not spare:
                mine.add(name)
            fleet.plan_pod(name, shape)
            index = order - want.pods if spare else order
            placed.append(
                PodPlace(group=group, index=index, node=name, gpus=shape.gpus, spare=spare)
            )
    return placed


def _for_spares(fleet: Fleet, want: Want, pool: Pool) -> tuple[frozenset[str], frozenset[str]]:
    """Return the nodes that may and may not hold spares; both empty if there is no restriction."""
    if not want.spares or not want.spares_on_reserved:
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

    Best fit, nodes in use before empty ones. Nodes in `rather_not` are chosen only if there is no
    other, and those in `last` only after them. Example: a pod of 2 GPUs and nodes a (8 free,
    empty), b (3 free) and c (2 free): c, otherwise b, otherwise a.
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
    return bucket & 1, bucket >> 1


def _refusal(fleet: Fleet, want: Want, locations: Sequence[Location]) -> Refused:
    pools = candidate_pools(fleet, want, locations)
    if not pools:
        where = " or ".join(f"{region}/{cluster}" for region, cluster in locations) or "the fleet"
        return Refused(
            reason=Refusal.NO_SUCH_FLAVOR,
            remedy=f"no node with {want.flavor} in {where}; check gpuType and locality.selector",
            asked=want.gpus,
            short_by=want.gpus,
        )
    free = sum(pool.free for pool in pools)
    if want.only is not None and free >= want.gpus and _has_gpus(want, pools):
        return _out_of_reach(fleet, want, pools)
    if want.spares and want.spares_on_reserved and free >= want.gpus and _has_gpus(want, pools):
        return _no_place_for_spares(fleet, want, pools)
    asks_more = bool(want.cpu_milli or want.memory_bytes or fleet.crowded)
    if asks_more and free >= want.gpus and _has_gpus(want, pools):
        return _short_of_others(fleet, want, pools)
    if free >= want.gpus:
        holes = ", ".join(
            f"{pool.domain} {pool.free} with at most {_largest_hole(pool)} on a node"
            for pool in pools[-_DOMAINS_NAMED:]
        )
        return Refused(
            reason=Refusal.NO_DOMAIN_FITS,
            now=f"{_are_free(free)}: {holes}",
            remedy="enough GPUs are free, but no single domain can hold a group of "
            f"{want.gpus_per_group} in pods of {want.pod_gpus}; smaller groups or pods "
            "would fit sooner",
            asked=want.gpus,
            limit=free,
            subject=pools[-1].domain,
        )
    return Refused(
        reason=Refusal.CAPACITY,
        remedy=f"{_too_few(want.gpus)} free; wait for leases to end",
        now=f"{_are_free(free)} of the {want.gpus} requested",
        asked=want.gpus,
        short_by=want.gpus - free,
        limit=free,
    )


def _are_free(count: int) -> str:
    return f"{plural(count, 'GPU')} {'is' if count == 1 else 'are'} free"


def _largest_hole(pool: Pool) -> int:
    return max((bucket >> 1 for bucket, names in pool.buckets.items() if names), default=0)


def _too_few(asked: int) -> str:
    return "no GPU is" if asked == 1 else f"fewer than {asked} GPUs are"


def _out_of_reach(fleet: Fleet, want: Want, pools: Sequence[Pool]) -> Refused:
    """Return the refusal if there are enough free GPUs, but not where its volumes can be
    reached."""
    assert want.only is not None, "whoever has no such volumes is not asked"
    names = [name for pool in pools for name in pool.nodes if name in want.only]
    free = sum(fleet.nodes[name].free for name in names)
    return Refused(
        reason=Refusal.CAPACITY,
        remedy=f"its volumes are reachable from {plural(len(names), 'node')} with {want.flavor}, "
        f"where {_too_few(want.gpus)} free; wait for leases to end, or use volumes that "
        "more nodes can reach",
        now=f"{_are_free(free)} there",
        asked=want.gpus,
        limit=free,
    )


def _no_place_for_spares(fleet: Fleet, want: Want, pools: Sequence[Pool]) -> Refused:
    """Return the refusal if there are enough free GPUs, but too few where spares may be."""
    states = [fleet.nodes[name] for pool in pools for name in pool.nodes]
    free = sum(state.free for state in states if state.node.is_reserved)
    asked = want.spares * want.pod_gpus * len(want.groups)
    return Refused(
        reason=Refusal.CAPACITY,
        remedy=f"{plural(asked, 'GPU')} of this run {'is' if asked == 1 else 'are'} for spares. "
        f"Spares need nodes with the taint {GROUP}/fleet, and too few GPUs are free "
        "there; wait for leases to end, or taint more nodes",
        now=f"{_are_free(free)} on those nodes",
        asked=want.gpus,
        limit=free,
    )


def _has_gpus(want: Want, pools: Sequence[Pool]) -> bool:
    """Return whether the request would fit if pods needed only GPUs."""
    per_group = want.pods + want.spares
    rooms = [pool.room(want.pod_gpus) // per_group for pool in pools]
    return (sum(rooms) if want.spread else max(rooms)) >= len(want.groups)


def _short_of_others(fleet: Fleet, want: Want, pools: Sequence[Pool]) -> Refused:
    """Return the refusal if there are enough free GPUs, but not enough CPU, memory or pods
    beside them."""
    states = [fleet.nodes[name] for pool in pools for name in pool.nodes]
    states = [state for state in states if state.free >= want.pod_gpus]
    asked = {"CPU": want.cpu_milli, "memory": want.memory_bytes, "pods": 1}
    left = {
        "CPU": {each.node.name: each.node.cpu_milli - each.cpu_used for each in states},
        "memory": {each.node.name: each.node.memory_bytes - each.memory_used for each in states},
        "pods": {each.node.name: each.node.pods_max - each.pods_used for each in states},
    }
    gpus = {each.node.name: each.free // want.pod_gpus for each in states}
    rooms = {
        what: sum(min(gpus[name], max(0, most) // amount) for name, most in left[what].items())
        for what, amount in asked.items()
        if amount
    }
    what = min(rooms, key=lambda each: rooms[each])
    name, most = max(left[what].items(), key=lambda each: (each[1], each[0]))
    return Refused(
        reason=Refusal.NODE_RESOURCES,
        remedy=f"enough GPUs are free, but on their nodes {_lack(want, what)}; request less, or "
        "wait for leases to end",
        now=f"{_are_free(sum(pool.free for pool in pools))}; among the nodes with "
        f"{plural(want.pod_gpus, 'free GPU')}, {name} has the most: "
        f"{_amount(what, max(0, most))} left",
        asked=want.gpus,
        limit=max(0, most),
        subject=name,
    )


def _lack(want: Want, what: str) -> str:
    if what == "pods":
        return "no more pods fit"
    amount = want.cpu_milli if what == "CPU" else want.memory_bytes
    return f"there is too little {what} left: a pod requests {_amount(what, amount)}"


def _amount(what: str, amount: int) -> str:
    if what == "pods":
        return f"room for {plural(amount, 'pod')}"
    return format_cpus(amount) if what == "CPU" else format_memory(amount)
