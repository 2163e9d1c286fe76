"""What the same questions cost without indices: a rescan of the fleet or the ledger each time.

These are baselines to compare with in the same run, not code anybody should use.
"""

from time import perf_counter

from bench.plans import full_world
from bench.rebuild import lease_objects
from bench.worlds import NOW, empty_world, fill, make_run, mixed_runs
from leasehold.core.world import World

import msgspec


def admit_runs_per_s(nodes: int, leases: int, count: int) -> float:
    """Take a snapshot of free GPUs from all leases, then place by scanning every node."""
    world = empty_world(nodes)
    fill(world, leases=leases, of_each_ten=7)
    began = perf_counter()
    for run in mixed_runs(count):
        _place(world, _snapshot(world), run.spec.total_gpus, run.spec.gpus_per_pod or 1)
    return count / (perf_counter() - began)


def _snapshot(world: World) -> dict[str, int]:
    free = {name: state.node.gpus for name, state in world.fleet.nodes.items()}
    used: dict[str, int] = {}
    for lease in world.leases.values():
        if lease.is_open:
            free[lease.node] -= lease.gpus
            used[lease.payer] = used.get(lease.payer, 0) + lease.gpus
    return free


def _place(world: World, free: dict[str, int], gpus: int, per_pod: int) -> int:
    placed = 0
    for name in sorted(free, key=lambda each: (free[each], each)):
        while free[name] >= per_pod and placed < gpus:
            free[name] -= per_pod
            placed += per_pod
    return placed


def resolve_ms(nodes: int) -> float:
    """Try every domain by ending its leases one at a time, counting all nodes after each."""
    world = full_world(nodes, limit=None)
    free = {name: state.free for name, state in world.fleet.nodes.items()}
    began = perf_counter()
    cut = 0
    for lease in world.leases.values():
        free[lease.node] += lease.gpus
        cut += lease.gpus
        if cut % 64 == 0 and sum(gpus // 8 for gpus in free.values()) * 8 >= 512:
            break
    return (perf_counter() - began) * 1000


def forecast_s(nodes: int, count: int) -> float:
    """Replay every known end for every run; measured on a few runs and scaled up."""
    world = full_world(nodes, limit=12 * 3_600_000)
    ends = sorted((term.frees_at, name) for name, term in world.terms.items())
    sample = 3
    began = perf_counter()
    for index in range(sample):
        run = make_run(5_000_000 + index, "org", 64)
        free = {name: state.free for name, state in world.fleet.nodes.items()}
        for _, name in ends[:20_000]:
            lease = world.leases[name]
            free[lease.node] += lease.gpus
        assert run.created == NOW
    return (perf_counter() - began) / sample * min(count, 256)


def rebuild_s(count: int, open_count: int) -> float:
    """Decode to plain dictionaries and sum by payer and node."""
    objects = lease_objects(count, open_count)
    began = perf_counter()
    used: dict[str, int] = {}
    for encoded in objects:
        wire = msgspec.json.decode(encoded)
        slots = wire["spec"]["slice"]["slots"]
        key = wire["spec"]["paidByEnvelope"]
        used[key] = used.get(key, 0) + len(slots)
    return perf_counter() - began
