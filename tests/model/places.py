"""pack: where it runs. Pods on nodes, groups in domains, spares beside their group.

A bin is a node's free GPUs, or the GPUs of spares there that a filler may sit on; a pod lies in one
bin. All pods of a run are of one size, so filling greedily never fails where anything would fit.
"""

from dataclasses import dataclass, field

from tests.model.view import View, end_of
from tests.model.world import Lease, Run, World

Bin = tuple[str, str]  # node, "free" or "spare"


@dataclass
class Spot:
    """One pod's place."""

    group: int
    role: str  # Active, Spare, Borrowed
    pod: int
    node: str


@dataclass
class Room:
    """What is there for one run, from an instant on for as long as it may run."""

    run: Run
    bins: dict[Bin, int]
    domain_of: dict[str, str]
    in_use: set[str]
    avoids: list[str] = field(default_factory=list)
    with_spares: bool = True

    def domains(self) -> list[str]:
        return sorted({self.domain_of[node] for node, _ in self.bins})

    def pods_of_group(self) -> int:
        return self.run.pods_per_group + (self.run.spare_pods if self.with_spares else 0)

    def gpus_of_group(self) -> int:
        return self.pods_of_group() * self.run.pod_gpus

    def pods_in(self, domain: str) -> int:
        return sum(
            gpus // self.run.pod_gpus
            for (node, _), gpus in self.bins.items()
            if self.domain_of[node] == domain
        )

    def left_in(self, domain: str) -> int:
        return sum(g for (node, _), g in self.bins.items() if self.domain_of[node] == domain)

    def holds(self, domain: str, groups: int) -> bool:
        return self.pods_in(domain) >= groups * self.pods_of_group()

    def copy(self) -> "Room":
        return Room(
            self.run, dict(self.bins), self.domain_of, set(self.in_use), self.avoids,
            self.with_spares,
        )  # fmt: skip

    def only_in(self, domains: list[str]) -> "Room":
        room = self.copy()
        room.bins = {k: gpus for k, gpus in self.bins.items() if self.domain_of[k[0]] in domains}
        return room

    def put_group(self, group: int, domain: str) -> list[Spot]:
        """Fill nodes in use before opening an empty one, best fit; the caller knows it fits. That
        this very plan has put a pod there does not make a node in use.

        Spares go to nodes that do not hold this group's pods when there is a choice. Free GPUs
        come before others' spares. A node that rejected the run before comes last.
        """
        spots: list[Spot] = []
        mine: set[str] = set()
        for pod in range(self.run.pods_per_group):
            spots.append(self._put(group, pod, domain, set()))
            mine.add(spots[-1].node)
        if self.with_spares:
            for pod in range(self.run.spare_pods):
                spot = self._put(group, pod, domain, mine)
                spot.role = "Spare"
                spots.append(spot)
        return spots

    def _put(self, group: int, pod: int, domain: str, beside: set[str]) -> Spot:
        size = self.run.pod_gpus
        fitting = [
            key for key, gpus in self.bins.items() if gpus >= size and self._is_in(key, domain)
        ]

        def rank(key: Bin) -> tuple[bool, bool, bool, bool, int, str]:
            node, pool = key
            return (
                node in self.avoids, pool == "spare", node in beside, node not in self.in_use,
                self.bins[key], node,
            )  # fmt: skip

        best = min(fitting, key=rank)
        self.bins[best] -= size
        return Spot(group, "Borrowed" if best[1] == "spare" else "Active", pod, best[0])

    def _is_in(self, key: Bin, domain: str) -> bool:
        return self.domain_of[key[0]] == domain


def room_for(
    view: View,
    run: Run,
    *,
    until: int | None = None,
    fill: bool = False,
    avoids: list[str] | None = None,
    shun: bool = False,
) -> Room:
    """What the run may use; with `shun`, not the nodes that rejected it."""
    world = view.world
    until = end_of(run, view.at) if until is None else until
    avoids = avoids or []
    bins: dict[Bin, int] = {}
    for name, gpus in view.room(run.flavor, until).items():
        if may_go(world, run, name) and not (shun and name in avoids):
            bins[name, "free"] = gpus
    if fill:
        free = {name: gpus // run.pod_gpus * run.pod_gpus for (name, _), gpus in bins.items()}
        for name, count in fillable(view, run, until, free).items():
            if (name, "free") in bins:
                bins[name, "spare"] = count
    domain_of = {node.name: node.domain for node in world.nodes.values()}
    return Room(run, bins, domain_of, view.in_use(), avoids, with_spares=not fill)


def may_go(world: World, run: Run, name: str) -> bool:
    node = world.nodes[name]
    wanted = run.selector
    return (
        wanted.get("region", node.region) == node.region
        and wanted.get("cluster", node.cluster) == node.cluster
        and wanted.get("fabric.domain", node.fabric) == node.fabric
    )


def spare_slots(world: World, name: str) -> list[int]:
    """Slots of spares that nobody sits on and that are not on their way out."""
    sat_on = {s for lease in on_node(world, name) if lease.role == "Borrowed" for s in lease.slots}
    slots = [
        slot
        for lease in on_node(world, name)
        if lease.role == "Spare" and not lease.ending and not is_promised(world, lease)
        for slot in lease.slots
        if slot not in sat_on
    ]
    return sorted(slots)


def on_node(world: World, name: str) -> list[Lease]:
    return [lease for lease in world.open_leases() if lease.node == name]


def is_promised(world: World, lease: Lease) -> bool:
    """A swap waits for this spare."""
    unit = world.runs[lease.run].unit_of(lease.group)
    return any((group, pod) == (lease.group, lease.pod) for group, _, pod in unit.swaps)


def fillable(view: View, run: Run, until: int, free: dict[str, int]) -> dict[str, int]:
    """GPUs under spares that a filler may sit on until then without being in anybody's way.

    Not on a spare that a plan ahead counts on. When the spare goes, the slot is the filler's own,
    so from then on it must be free of others' plans, beside the `free` GPUs that the filler takes
    first. A spare has no pod: somebody else's pods may have taken its GPUs.
    """
    world = view.world
    counted_on = {
        number
        for claim in view.claims
        if claim.kind == "cut" and until > claim.since
        for number in claim.rests_on
    }
    found: dict[str, int] = {}
    for node in world.nodes.values():
        if not node.usable or node.flavor != run.flavor:
            continue
        ends: list[int] = []  # of the spares, seat by seat
        seats = 0
        for lease in on_node(world, node.name):
            if lease.role == "Spare" and lease.number not in counted_on:
                open_ = [s for s in lease.slots if s in spare_slots(world, node.name)]
                seats += len(open_)
                end = view.until(lease)
                if end < until:
                    later = View(world, end, view.claims).room(run.flavor, until)
                    left = later.get(node.name, 0) - free.get(node.name, 0)
                    own = sum(1 for each in ends if each <= end)  # by then, the filler's
                    open_ = open_[: max(0, left - own)]
                ends += [end] * len(open_)
        taken = {slot for lease in on_node(world, node.name) for slot in lease.slots}
        seats -= max(0, len(taken) + node.foreign - node.gpus)
        if ends and seats > 0:
            found[node.name] = min(len(ends), seats)
    return found


def free_slots(world: World, name: str) -> list[int]:
    """Ordinals without a lease, lowest first."""
    taken = {slot for lease in on_node(world, name) for slot in lease.slots}
    return [slot for slot in range(world.nodes[name].gpus) if slot not in taken]
