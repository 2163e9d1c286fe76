"""B. Bind: from a placement to leases and pods. All or nothing; a node may reject it."""

from tests.model.facts import Lease, Placement, Pod, Run, Segment, Spot, Unit, World
from tests.model.packing import free_slots, spare_slots


def open_leases(world: World, run: Run, placement: Placement, reason: str) -> list[Lease]:
    """B1: open one lease per pod and payer. Payers are assigned in group order, pods before
    spares."""
    purses = {place: list(bill) for place, bill in placement.bills.items()}
    before = len(world.leases)
    for spot in sorted(placement.spots, key=lambda s: (s.group, s.role == "Spare", s.pod)):
        _open_pod(world, run, spot, purses[world.nodes[spot.node].place], reason)
    return world.leases[before:]


def _open_pod(world: World, run: Run, spot: Spot, purse: list[Segment], reason: str) -> None:
    is_filler = spot.role == "Borrowed"
    slots = spare_slots(world, spot.node) if is_filler else free_slots(world, spot.node)
    slots = slots[: run.pod_gpus]
    assert len(slots) == run.pod_gpus, f"{run.key} does not fit on {spot.node}"
    while slots:
        payer, gpus, relation = purse[0]
        part, slots = slots[:gpus], slots[gpus:]
        rest = gpus - len(part)
        purse[0:1] = [(payer, rest, relation)] if rest else []
        lease = Lease(
            number=len(world.leases), run=run.key, group=spot.group, pod=spot.pod,
            attempt=run.unit_of(spot.group).attempt, role=spot.role, node=spot.node,
            slots=tuple(part), payer=payer, relation=relation, start=world.now, opened=reason,
        )  # fmt: skip
        world.leases.append(lease)
    if spot.role != "Spare":
        start_pod(world, run, spot.group, spot.pod, spot.node)


def start_pod(world: World, run: Run, group: int, index: int, node: str) -> None:
    """Start a pod. `lasts` counts from the start of the attempt, also after a swap or a restart."""
    unit = run.unit_of(group)
    work = run.work(unit.attempt)
    until = None if work["lasts"] is None else unit.started + work["lasts"]
    world.pods.append(Pod(run.key, group, index, node, until, work["exit"], work["stops"]))


def start(world: World, run: Run, placement: Placement) -> None:
    """Start a new attempt of the units that the placement has groups of."""
    groups = placement.groups()
    units = [run.units[g] for g in groups] if run.is_sweep else [run.units[0]]
    for unit in units:
        unit.attempt += 1
        unit.started, unit.standing = world.now, "live"
        unit.fate, unit.settled, unit.swaps = "", 0, []
    opened = open_leases(world, run, placement, "Start")
    rejected = None
    is_first_try = run.key not in world.tried  # G1: the groups of one pass count as one try
    world.tried.add(run.key)
    if world.failing_binds and is_first_try:
        world.failing_binds -= 1
        rejected = min(units, key=lambda unit: unit.index)
        world.rejected.append((run, rejected, opened))
    for unit in units:
        if unit is not rejected:
            unit.rejections, unit.avoids = 0, []
    if run.wait_over is None:
        run.wait_over = world.now
    world.note(f"{run.key} starts on {[(s.node, s.role) for s in placement.spots]}")


def see_rejections(world: World) -> bool:
    """B2: take back the attempts that a node rejected. The others are bound, and their plans and
    holds end."""
    rejected, world.rejected, world.tried = world.rejected, [], set()
    for run, unit, opened in rejected:
        _take_back(world, run, unit, opened)
    return bool(rejected)


def _take_back(world: World, run: Run, unit: Unit, opened: list[Lease]) -> None:
    """Take back an attempt: the node of pod 0 of the lowest group has rejected it.

    The other pods are asked to stop. The pause begins when all pods are gone.
    """
    mine = [lease for lease in opened if run.unit_of(lease.group) is unit]
    lowest = min(lease.group for lease in mine)
    first = next(x for x in mine if (x.group, x.pod) == (lowest, 0) and x.role != "Spare")
    for lease in mine:
        if lease.role == "Spare" or (lease.group, lease.pod) == (lowest, 0):
            lease.end, lease.closed = world.now, "Fail"
        else:
            lease.ending, lease.marked, lease.deadline = "Fail", world.now, world.now + run.grace
    for pod in [p for p in world.pods if p.run == run.key and run.unit_of(p.group) is unit]:
        if (pod.group, pod.index) == (lowest, 0):
            world.pods.remove(pod)
        else:
            pod.wanted = pod.told = world.now
            pod.allowed = run.grace
    unit.fate = "Rejected"
    unit.rejections += 1
    unit.avoids = [name for name in unit.avoids if name != first.node] + [first.node]
