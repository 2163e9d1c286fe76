"""How wide a run is, should be and may be, in GPUs and whole groups.

Pure arithmetic over a run's spec and its open leases; the one place that defines group, pod and
step sizes. The width never includes spares.
"""

from leasehold.core.facts import Gang, Lease, Location, Role, Run, RunSpec
from leasehold.core.world.world import World


def open_leases(world: World, uid: str) -> list[Lease]:
    """Return a run's open leases, by name."""
    names = world.open_by_run.get(uid, ())
    world.steps.take(len(names))
    return [world.leases[name] for name in sorted(names)]


def standing_groups(world: World, uid: str) -> dict[int, list[Lease]]:
    """Return the groups with active leases that are not ending, by index."""
    groups: dict[int, list[Lease]] = {}
    for lease in open_leases(world, uid):
        if lease.ending is None and lease.role is not Role.SPARE:
            groups.setdefault(lease.group, []).append(lease)
    return dict(sorted(groups.items()))


def active_gpus(world: World, uid: str) -> int:
    """Return the present width: GPUs under Active or Borrowed leases, including ending ones."""
    return sum(
        world.leases[name].gpus
        for name in world.open_by_run.get(uid, ())
        if world.leases[name].role is not Role.SPARE
    )


def spare_gpus(world: World, uid: str) -> int:
    return sum(
        world.leases[name].gpus
        for name in world.open_by_run.get(uid, ())
        if world.leases[name].role is Role.SPARE
    )


def desired_gpus(spec: RunSpec) -> int:
    return spec.malleable.desired_gpus if spec.malleable else spec.total_gpus


def minimum_gpus(spec: RunSpec) -> int:
    """Return the width below which the run cannot live: one group for `gang: Group`, otherwise
    all of it or its elastic minimum."""
    if spec.malleable:
        return spec.malleable.min_gpus
    return spec.group_gpus if spec.gang is Gang.GROUP else spec.total_gpus


def maximum_gpus(spec: RunSpec) -> int:
    return spec.malleable.max_gpus if spec.malleable else spec.total_gpus


def starting_gpus(spec: RunSpec) -> int:
    """Return the width an attempt starts with: the lesser of total and desired."""
    return min(spec.total_gpus, desired_gpus(spec))


def group_count(spec: RunSpec, gpus: int) -> int:
    assert gpus % spec.group_gpus == 0, (gpus, spec.group_gpus)
    return gpus // spec.group_gpus


def pod_size(world: World, run: Run) -> int:
    """Return GPUs per pod: as specified, otherwise the largest size that divides a group and
    fits a node."""
    spec = run.spec
    if spec.gpus_per_pod is not None:
        return spec.gpus_per_pod
    for lease in open_leases(world, run.uid):
        if lease.role is not Role.SPARE:
            # The fleet may have changed since; pods of one attempt have one size.
            mates = [
                each.gpus
                for each in open_leases(world, run.uid)
                if (each.group, each.index, each.role) == (lease.group, lease.index, lease.role)
            ]
            return sum(mates)
    largest = max(1, world.fleet.flavor_gpus_max(spec.flavor))
    return next(
        size
        for size in range(min(largest, spec.group_gpus), 0, -1)
        if spec.group_gpus % size == 0 and spec.spares_per_group % size == 0
    )


def locations_for(world: World, spec: RunSpec) -> list[Location]:
    """Return the locations that a run may use, by name."""
    wanted = spec.selector
    found = [
        (region, cluster)
        for region, cluster in world.fleet.locations(spec.flavor)
        if wanted.region in (None, region) and wanted.cluster in (None, cluster)
    ]
    if wanted.domain is None:
        return found
    pools = world.fleet.pools
    there = [
        location
        for location in found
        if (spec.flavor, "/".join((*location, wanted.domain))) in pools
    ]
    return there or found  # no location has the domain: the refusal names it


def own_domains(world: World, uid: str) -> tuple[str, ...]:
    """Return the domains of the run's leases that are not ending."""
    found = {
        state.node.domain
        for lease in open_leases(world, uid)
        if lease.ending is None and (state := world.fleet.nodes.get(lease.node)) is not None
    }
    return tuple(sorted(found))


def free_indices(taken: set[int], count: int) -> tuple[int, ...]:
    """Return the lowest unused group indices."""
    found: list[int] = []
    index = 0
    while len(found) < count:
        if index not in taken:
            found.append(index)
        index += 1
    return tuple(found)
