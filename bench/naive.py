"""Baselines without indices: each decision scans the whole fleet or the whole ledger.

They are measured in the same run for comparison. No program should work like this.
"""

from time import process_time

import msgspec

from bench.plans import full_world
from bench.rebuild import lease_objects
from bench.worlds import empty_world, fill, mixed_runs
from leasehold.core.units import HOUR
from leasehold.core.world.world import World


def admit_runs_per_s(nodes: int, leases: int, count: int) -> float:
    """Return how many runs per second can be placed if each one counts the free GPUs from all
    leases and then scans every node."""
    world = empty_world(nodes)
    fill(world, leases=leases, of_each_ten=7)
    began = process_time()
    for run in mixed_runs(count):
        _place(_snapshot(world), run.spec.total_gpus, run.spec.gpus_per_pod or 1)
    return count / (process_time() - began)


def _snapshot(world: World) -> dict[str, int]:
    free = {name: state.node.gpus for name, state in world.fleet.nodes.items()}
    used: dict[str, int] = {}
    for lease in world.leases.values():
        if lease.is_open:
            free[lease.node] -= lease.gpus
            used[lease.payer] = used.get(lease.payer, 0) + lease.gpus
    return free


def _place(free: dict[str, int], gpus: int, per_pod: int) -> int:
    placed = 0
    for name in sorted(free, key=lambda each: (free[each], each)):
        while free[name] >= per_pod and placed < gpus:
            free[name] -= per_pod
            placed += per_pod
    return placed


def resolve_ms(nodes: int) -> float:
    """Return the milliseconds to count the GPUs held in every domain by scanning all leases for
    each. Measured on 20 domains and scaled up."""
    world = full_world(nodes, limit=None)
    domains = sorted({domain for _, domain in world.fleet.pools})
    began = process_time()
    for domain in domains[:20]:
        held = 0
        for lease in world.leases.values():
            node = world.fleet.nodes[lease.node].node
            if lease.is_open and f"{node.region}/{node.cluster}/{node.fabric}" == domain:
                held += lease.gpus
    return (process_time() - began) * 1000 / 20 * len(domains)


def forecast_s(nodes: int, count: int) -> float:
    """Return the seconds to plan each run by going through every known end of a lease. Measured on
    three runs and scaled up."""
    world = full_world(nodes, limit=12 * HOUR)
    ends = sorted((term.frees_at, name) for name, term in world.terms.items())
    sample = 3
    began = process_time()
    for _ in range(sample):
        free = {name: state.free for name, state in world.fleet.nodes.items()}
        for _, name in ends[: len(ends) // 2]:
            lease = world.leases[name]
            free[lease.node] += lease.gpus
    return (process_time() - began) / sample * min(count, 256)


def rebuild_s(count: int, open_count: int) -> float:
    """Return the seconds to decode the leases to plain dictionaries and to sum their GPUs by
    payer."""
    objects = lease_objects(count, open_count)
    began = process_time()
    used: dict[str, int] = {}
    for encoded in objects:
        wire = msgspec.json.decode(encoded)
        slots = wire["spec"]["slice"]["slots"]
        key = wire["spec"]["paidByEnvelope"]
        used[key] = used.get(key, 0) + len(slots)
    return process_time() - began
