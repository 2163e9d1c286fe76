"""bind: from a plan to leases and pods. All or nothing; a node may reject it.

Payers are dealt to pods in group order, a group's active pods before its spares. A pod whose GPUs
straddle two segments gets two leases. Slots are the lowest free ordinals.
"""

from tests.model.admit import Plan, place_of
from tests.model.money import Segment
from tests.model.places import Spot, free_slots, spare_slots
from tests.model.world import Lease, Pod, Run, Unit, World


def open_plan(world: World, run: Run, plan: Plan, reason: str) -> list[Lease]:
    """Opens the leases of a plan and starts its pods."""
    purses: dict[tuple[str, str], list[Segment]] = {
        place: list(bill) for place, bill in plan.bills.items()
    }
    before = len(world.leases)
    for spot in sorted(plan.spots, key=lambda s: (s.group, s.role == "Spare", s.pod)):
        _open_pod(world, run, spot, purses, reason)
    return world.leases[before:]


def _open_pod(
    world: World,
    run: Run,
    spot: Spot,
    purses: dict[tuple[str, str], list[Segment]],
    reason: str,
) -> None:
    fills = spot.role == "Borrowed"
    slots = spare_slots(world, spot.node) if fills else free_slots(world, spot.node)
    slots = slots[: run.pod_gpus]
    assert len(slots) == run.pod_gpus, f"{run.key} does not fit on {spot.node}"
    purse = purses[place_of(world.nodes[spot.node].domain)]
    attempt = run.unit_of(spot.group).attempt
    while slots:
        payer, gpus, relation = purse[0]
        part, slots = slots[:gpus], slots[gpus:]
        rest = gpus - len(part)
        purse[0:1] = [(payer, rest, relation)] if rest else []
        lease = Lease(
            number=len(world.leases),
            run=run.key, group=spot.group, pod=spot.pod, attempt=attempt, role=spot.role,
            node=spot.node, slots=tuple(part), payer=payer, relation=relation,
            start=world.now, opened=reason,
        )  # fmt: skip
        world.leases.append(lease)
    if spot.role != "Spare":
        start_pod(world, run, spot.group, spot.pod, spot.node)


def start_pod(world: World, run: Run, group: int, index: int, node: str) -> Pod:
    """`lasts` counts from the start of the attempt, whatever is swapped or restarted."""
    unit = run.unit_of(group)
    work = run.work(unit.attempt)
    until = None if work["lasts"] is None else unit.started + work["lasts"]
    pod = Pod(run.key, group, index, node, until, work["exit"], work["stops"], run.grace)
    world.pods.append(pod)
    return pod


def start(world: World, run: Run, units: list[Unit], plan: Plan) -> None:
    """A new attempt of these units. The batch that opens a gang commits as one."""
    for unit in units:
        unit.attempt += 1
        unit.started = world.now
        unit.standing = "live"
        unit.fate = ""
        unit.settled = 0
        unit.swaps = []
    opened = open_plan(world, run, plan, "Start")
    rejected = None
    is_another = run.key not in world.tried  # groups that start one after the other are one try
    world.tried.add(run.key)
    if world.failing_binds and is_another:
        world.failing_binds -= 1
        rejected = min(units, key=lambda unit: unit.index)
        world.rejected.append((run, rejected, opened))
    for unit in units:
        if unit is not rejected:
            unit.rejections = 0
            unit.avoids = []
    if run.by_resolution:  # whoever is considered before it is known whether it holds finds it so
        run.unprotected = (run.tenured, run.protected)
        run.tenured = world.now
        run.protected = world.now + world.tenure_of(run)
    if run.activation is not None:
        world.sitting[run.key] = set(run.activation.domains.values())
    is_first = run.booking is not None and run.booking.state == "Activating"
    world.book(run, None, "Released")
    if is_first:
        see_rejections(world)  # nobody else is considered before it is known whether it holds
    if rejected is None or len(units) > 1:
        run.by_resolution = False
        run.activation = None
    world.note(f"{run.key} starts on {[(s.node, s.role) for s in plan.spots]}")


def see_rejections(world: World) -> bool:
    """Starts that nodes would not have are taken back, once all have started that can."""
    rejected, world.rejected, world.tried, world.sitting = world.rejected, [], set(), {}
    for run, unit, opened in rejected:
        _reject(world, run, unit, opened)
    return bool(rejected)


def _reject(world: World, run: Run, unit: Unit, opened: list[Lease]) -> None:
    """Pod 0 of the lowest group is rejected by its node: the attempt is taken back whole.

    Its other pods are asked to stop like any others; the pause counts from when all are gone.
    """
    mine = [lease for lease in opened if run.unit_of(lease.group) is unit]
    lowest = min(lease.group for lease in mine)
    node = next(x.node for x in mine if (x.group, x.pod) == (lowest, 0) and x.role != "Spare")
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
    if run.by_resolution and len(mine) == len(opened):  # else other groups of it hold
        run.tenured, run.protected = run.unprotected
    unit.rejections += 1
    if node in unit.avoids:
        unit.avoids.remove(node)
    unit.avoids.append(node)
