"""Measures the rebuilding of the World from stored Lease objects, which a restart must do."""

import resource
from time import process_time

import msgspec

from bench.worlds import NOW, empty_world, owners
from leasehold.core.facts import Closed, Closure, ClosureReason, Lease, Opened, Relation, Role
from leasehold.core.objects.lease import lease_to_wire, leases_from_json
from leasehold.core.units import MINUTE
from leasehold.core.world.world import World
from leasehold.shell.loop.recover import fold_leases


def lease_objects(count: int, open_count: int) -> list[bytes]:
    """Return `count` leases, encoded as the store has them. The newest `open_count` are open."""
    teams = [owner for owner in owners() if owner.count(":") == 3]
    objects = []
    for index in range(count):
        owner = teams[index % len(teams)]
        name = owner.replace(":", "-")
        is_open = index >= count - open_count
        place = index - (count - open_count) if is_open else index
        lease = Lease(
            name=f"job-{index % 977}-{index // 8 + 2}-{index % 8}",
            owner=owner, namespace=name, run=f"job-{index % 977}", uid=f"u{index // 8}", attempt=1,
            group=0, index=index % 8, node=f"n{place // 8 % 10_000:05d}", slots=(place % 8,),
            role=Role.ACTIVE, start=NOW - 90 * MINUTE, payer=f"{name}/{name}/open",
            payer_owner=owner, relation=Relation.OWNED, reason=Opened.START,
            batch=index // 8 + 2, pod=f"job-{index % 977}-{index // 8 + 2}-g0-p{index % 8}",
            closed=None if is_open else Closure(
                why=ClosureReason(reason=Closed.COMPLETED), at=NOW - 30 * MINUTE,
                batch=index // 8 + 3
            ),
        )  # fmt: skip
        objects.append(msgspec.json.encode(lease_to_wire(lease)))
    return objects


def rebuild(objects: list[bytes], nodes: int) -> tuple[World, float]:
    world = empty_world(nodes)
    began = process_time()
    fold_leases(world, map(leases_from_json, objects))
    return world, process_time() - began


def measure(count: int, open_count: int) -> tuple[float, float]:
    """Return the CPU seconds, and the peak memory in MiB without that of the encoded objects."""
    objects = lease_objects(count, open_count)
    encoded_mib = sum(map(len, objects)) / 2**20
    world, spent = rebuild(objects, 10_000)
    assert len(world.leases) == count
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return spent, peak_mib - encoded_mib
