"""Which GPUs are free, indexed so that placing a pod does not scan the fleet.

A *pool* is the nodes of one flavor in one domain; its *home* is (flavor, region, cluster). Nodes
are in buckets by (free GPUs, node is empty), pools in an order by free GPUs. Taking or giving slots
moves one node between buckets. `World` folds leases, nodes and foreign pods into it; `pack` reads
it; what-ifs change it and undo it.
"""

from bisect import bisect_left, insort
from collections.abc import Iterable

from leasehold.core.facts import Lease, Node, Record, Role, Toleration
from leasehold.core.world.what_if import WhatIf


class NodeState:
    """One node and what runs on it. Masks have one bit per GPU ordinal."""

    __slots__ = (
        "bucket",
        "cpu_used",
        "filler",
        "foreign",
        "free",
        "memory_used",
        "node",
        "planned",
        "pods_used",
        "solid",
        "spare",
        "strangers",
        "takes_work",
        "tolerated",
    )

    def __init__(self, node: Node) -> None:
        self.node = node
        self.solid = 0  # slots under an Active or Spare lease
        self.spare = 0  # the part of `solid` under a Spare lease
        self.filler = 0  # slots under a Borrowed lease
        self.foreign = 0  # GPUs of pods without an open lease of ours
        self.strangers = 0  # the slots of `foreign` pods, as far as the node reports them
        self.planned = 0  # GPUs that a what-if or a hold keeps
        self.cpu_used = 0
        self.memory_used = 0
        self.pods_used = 0
        self.tolerated = False
        self.free = 0
        self.bucket = -1
        self.takes_work = self._takes_work()

    def change(self, *, node: Node | None = None, tolerated: bool = False) -> None:
        """Update the node; caches `takes_work`, which is needed for every slot."""
        self.node = node or self.node
        self.tolerated = tolerated
        self.takes_work = self._takes_work()

    def _takes_work(self) -> bool:
        node = self.node
        return (
            node.ready
            and not node.cordoned
            and not node.fenced
            and not node.lacks
            and (self.tolerated or not repels(node))
        )

    @property
    def occupied(self) -> int:
        return self.solid | self.filler

    @property
    def is_empty(self) -> bool:
        return not self.solid and not self.filler and not self.foreign

    def count_free(self) -> int:
        if not self.takes_work:
            return 0
        taken = (self.solid | self.filler).bit_count() + self.foreign + self.planned
        free = self.node.gpus - taken
        return free if free > 0 else 0

    def unclipped_free(self) -> int:
        """Return the free GPUs; negative if more is planned than exists."""
        taken = (self.solid | self.filler).bit_count() + self.foreign + self.planned
        return self.node.gpus - taken

    def holds(self, shape: "Shape") -> int:
        """Return how many more pods of this shape fit on the node."""
        room = min(self.free // shape.gpus, self.node.pods_max - self.pods_used)
        if shape.cpu_milli:
            room = min(room, (self.node.cpu_milli - self.cpu_used) // shape.cpu_milli)
        if shape.memory_bytes:
            room = min(room, (self.node.memory_bytes - self.memory_used) // shape.memory_bytes)
        return max(0, room)


class Shape:
    """What one pod requests from a node."""

    __slots__ = ("cpu_milli", "gpus", "memory_bytes")

    def __init__(self, gpus: int, cpu_milli: int = 0, memory_bytes: int = 0) -> None:
        assert gpus > 0
        self.gpus = gpus
        self.cpu_milli = cpu_milli
        self.memory_bytes = memory_bytes


class Size(Record):
    """The capacity of a node; most nodes of a fleet share one."""

    gpus: int
    cpu_milli: int
    memory_bytes: int
    pods_max: int


def size_of(node: Node) -> Size:
    return Size(
        gpus=node.gpus,
        cpu_milli=node.cpu_milli,
        memory_bytes=node.memory_bytes,
        pods_max=node.pods_max,
    )


class Pool:
    """The nodes of one flavor in one domain."""

    __slots__ = ("buckets", "domain", "filed", "flavor", "free", "home", "nodes", "sizes")

    def __init__(self, flavor: str, domain: str, home: tuple[str, str, str]) -> None:
        self.flavor = flavor
        self.domain = domain
        self.home = home
        self.free = 0
        self.filed = -1  # the free count under which the order lists it
        self.nodes: list[str] = []  # sorted
        # free * 2 + is_empty -> sorted node names; e.g. 17 for an empty node with 8 free GPUs
        self.buckets: dict[int, list[str]] = {}
        self.sizes: dict[Size, int] = {}  # number of nodes of each size, in any state

    def count_size(self, size: Size, sign: int) -> None:
        count = self.sizes.get(size, 0) + sign
        if count:
            self.sizes[size] = count
        else:
            del self.sizes[size]

    def room(self, gpus: int) -> int:
        """Return an upper bound of the pods that fit; exact if only GPUs are short."""
        return sum(len(names) * ((bucket >> 1) // gpus) for bucket, names in self.buckets.items())


class Fleet:
    """All nodes, their pools, and the order of pools by free GPUs."""

    def __init__(self, what_if: WhatIf) -> None:
        self._what_if = what_if
        self.steps = what_if.steps
        self.nodes: dict[str, NodeState] = {}
        self.pools: dict[tuple[str, str], Pool] = {}
        self._orders: dict[tuple[str, str, str], list[tuple[int, str]]] = {}
        self._stale: dict[tuple[str, str], None] = {}
        self.fillable: dict[str, None] = {}  # nodes with a spare slot without a filler
        # nodes whose pod limit may be reached before the GPUs are
        self.crowded: dict[str, None] = {}
        self.draining: dict[str, None] = {}  # nodes under drain
        self.requests: dict[str, tuple[int, int]] = {}  # run uid -> CPU, memory of one pod
        # number of leases that share one pod
        self._sharers: dict[tuple[str, str, int, str], int] = {}

    def locations(self, flavor: str) -> list[tuple[str, str]]:
        """Return the (region, cluster) pairs that have nodes of a flavor, by name."""
        return sorted(home[1:] for home in self._orders if home[0] == flavor)

    def flavor_gpus_max(self, flavor: str) -> int:
        """Return the GPUs of the largest node of a flavor; 0 if there is none."""
        sizes = [
            size.gpus
            for (each, _), pool in self.pools.items()
            if each == flavor
            for size in pool.sizes
        ]
        return max(sizes, default=0)

    def by_free(self, flavor: str, region: str, cluster: str) -> list[tuple[int, str]]:
        """Return (free GPUs, domain) of every pool of a location, ascending."""
        for key in self._stale:
            pool = self.pools[key]
            order = self._orders[pool.home]
            if pool.filed >= 0:
                del order[bisect_left(order, (pool.filed, pool.domain))]
            insort(order, (pool.free, pool.domain))
            pool.filed = pool.free
        self._stale.clear()
        return self._orders.get((flavor, region, cluster), [])

    # Nodes are added, changed and removed.

    def put_node(self, node: Node) -> None:
        if node.is_draining:
            self.draining[node.name] = None
        else:
            self.draining.pop(node.name, None)
        state = self.nodes.get(node.name)
        if state is None:
            self.nodes[node.name] = state = NodeState(node)
            self._file(state)
        elif (state.node.flavor, state.node.domain) != (node.flavor, node.domain):
            self._unfile(state)
            state.change(node=node)
            self._file(state)
        else:
            before, after = size_of(state.node), size_of(node)
            state.change(node=node)
            if before != after:
                pool = self.pools[(node.flavor, node.domain)]
                pool.count_size(before, -1)
                pool.count_size(after, 1)
            self.refile(state)

    def drop_node(self, name: str) -> None:
        state = self.nodes.pop(name)
        self._unfile(state)
        self.fillable.pop(name, None)
        self.crowded.pop(name, None)
        self.draining.pop(name, None)
        for key in [key for key in self._sharers if key[0] == name]:
            del self._sharers[key]

    def _file(self, state: NodeState) -> None:
        node = state.node
        key = (node.flavor, node.domain)
        pool = self.pools.get(key)
        if pool is None:
            home = (node.flavor, node.region, node.cluster)
            pool = self.pools[key] = Pool(node.flavor, node.domain, home)
            self._orders.setdefault(home, [])
        insort(pool.nodes, node.name)
        pool.count_size(size_of(node), 1)
        self.refile(state)

    def _unfile(self, state: NodeState) -> None:
        node = state.node
        pool = self.pools[(node.flavor, node.domain)]
        pool.nodes.remove(node.name)
        pool.count_size(size_of(node), -1)
        self._leave_bucket(pool, state)
        state.bucket, state.free = -1, 0
        self._stale[(node.flavor, node.domain)] = None
        if not pool.nodes:
            self.by_free("", "", "")
            order = self._orders[pool.home]
            del order[bisect_left(order, (pool.filed, pool.domain))]
            del self.pools[(node.flavor, node.domain)]
            if not order:
                del self._orders[pool.home]

    def _leave_bucket(self, pool: Pool, state: NodeState) -> None:
        if state.bucket >= 0:
            names = pool.buckets[state.bucket]
            del names[bisect_left(names, state.node.name)]
            if not names:
                del pool.buckets[state.bucket]
            pool.free -= state.free

    def refile(self, state: NodeState) -> None:
        """Update the indices after the caller has changed the fields of a node."""
        free = state.count_free()
        if state.node.pods_max - state.pods_used < free:
            self.crowded[state.node.name] = None
        elif self.crowded:
            self.crowded.pop(state.node.name, None)
        bucket = free * 2 + state.is_empty
        if bucket == state.bucket:
            return
        node = state.node
        key = (node.flavor, node.domain)
        pool = self.pools[key]
        self._leave_bucket(pool, state)
        names = pool.buckets.get(bucket)
        if names is None:
            pool.buckets[bucket] = [node.name]
        else:
            insort(names, node.name)
        if free != state.free or state.bucket < 0:
            self._stale[key] = None
        pool.free += free
        state.free, state.bucket = free, bucket

    # Leases take and give slots.

    def take(self, lease: Lease) -> None:
        state = self.nodes.get(lease.node)
        if state is not None:
            self._shift(state, lease, 1)
            if self._what_if.active:
                self._what_if.note(lambda: self._shift(state, lease, -1))

    def give(self, lease: Lease) -> None:
        state = self.nodes.get(lease.node)
        if state is not None:
            self._shift(state, lease, -1)
            if self._what_if.active:
                self._what_if.note(lambda: self._shift(state, lease, 1))

    def _shift(self, state: NodeState, lease: Lease, sign: int) -> None:
        mask = mask_of(lease.slots)
        if lease.role is Role.BORROWED:
            state.filler = state.filler | mask if sign > 0 else state.filler & ~mask
        else:
            state.solid = state.solid | mask if sign > 0 else state.solid & ~mask
            if lease.role is Role.SPARE:
                state.spare = state.spare | mask if sign > 0 else state.spare & ~mask
        if state.spare & ~state.filler:
            self.fillable[state.node.name] = None
        else:
            self.fillable.pop(state.node.name, None)
        self._count_pod(state, lease, sign)
        self.refile(state)

    def _count_pod(self, state: NodeState, lease: Lease, sign: int) -> None:
        """Count CPU, memory and the pod once, however many payers share the pod."""
        key = (lease.node, lease.uid, lease.group, lease.pod or f"spare {lease.index}")
        before = self._sharers.get(key, 0)
        if before + sign:
            self._sharers[key] = before + sign
        else:
            del self._sharers[key]
        if before == 0 or before + sign == 0:
            cpu_milli, memory_bytes = self.requests.get(lease.uid, (0, 0))
            state.cpu_used += sign * cpu_milli
            state.memory_used += sign * memory_bytes
            state.pods_used += sign

    def plan(self, name: str, gpus: int) -> None:
        """Take GPUs of a node off the free ones, without making the node count as in use."""
        state = self.nodes[name]
        self._plan(state, gpus)
        if self._what_if.active:
            self._what_if.note(lambda: self._plan(state, -gpus))

    def _plan(self, state: NodeState, gpus: int) -> None:
        state.planned += gpus
        self.refile(state)

    def plan_pod(self, name: str, shape: Shape) -> None:
        """Plan a pod on a node. The caller must hold an open what-if."""
        state = self.nodes[name]
        self._plan_pod(state, shape, 1)
        if self._what_if.active:
            self._what_if.note(lambda: self._plan_pod(state, shape, -1))

    def unplan(self, name: str, shape: Shape) -> None:
        """Remove a planned pod again within the same what-if."""
        state = self.nodes[name]
        self._plan_pod(state, shape, -1)
        if self._what_if.active:
            self._what_if.note(lambda: self._plan_pod(state, shape, 1))

    def _plan_pod(self, state: NodeState, shape: Shape, sign: int) -> None:
        state.cpu_used += sign * shape.cpu_milli
        state.memory_used += sign * shape.memory_bytes
        state.pods_used += sign
        state.planned += sign * shape.gpus
        self.refile(state)

    def load(
        self,
        name: str,
        *,
        gpus: int,
        cpu_milli: int,
        memory_bytes: int,
        pods: int,
        slots: int = 0,
    ) -> None:
        """Count a foreign pod on a node; with negative numbers, remove it.

        `slots` is the mask of the pod's GPUs, if known.
        """
        state = self.nodes.get(name)
        if state is None:
            return
        state.foreign += gpus
        state.strangers = state.strangers | slots if pods > 0 else state.strangers & ~slots
        state.cpu_used += cpu_milli
        state.memory_used += memory_bytes
        state.pods_used += pods
        self.refile(state)

    def tolerate(self, tolerations: tuple[Toleration, ...]) -> None:
        """Let nodes take work whose taints are tolerated. The caller must hold an open what-if."""
        if not tolerations:
            return
        for name in sorted(self.nodes):
            state = self.nodes[name]
            if state.node.taints and not (state.tolerated or repels(state.node, tolerations)):
                self._admit(state)

    def _admit(self, state: NodeState) -> None:
        self._tolerate(state, True)
        if self._what_if.active:
            self._what_if.note(lambda: self._tolerate(state, False))

    def _tolerate(self, state: NodeState, tolerated: bool) -> None:
        state.change(tolerated=tolerated)
        self.refile(state)


def repels(node: Node, tolerations: Iterable[Toleration] = ()) -> bool:
    """Return whether a taint keeps new pods off. `PreferNoSchedule` does not."""
    return any(
        taint.effect in ("NoSchedule", "NoExecute")
        and not any(
            each.effect in ("", taint.effect)
            and (not each.key or each.key == taint.key)
            and (each.operator == "Exists" or each.value == taint.value)
            for each in tolerations
        )
        for taint in node.taints
    )


def mask_of(slots: Iterable[int]) -> int:
    mask = 0
    for slot in slots:
        mask |= 1 << slot
    return mask
