"""Leases that are only supposed: as if they were open, for whoever asks what could be cut then.

Under a mark, as all what-ifs. They take their slots, and are found by run and by node; no book
knows of them, nobody pays, and no pod is theirs.
"""

from collections.abc import Sequence

from leasehold.core.facts import Lease
from leasehold.core.world.accounts import UNLIMITED, Term
from leasehold.core.world.open_index import discard
from leasehold.core.world.world import World


def suppose(world: World, leases: Sequence[Lease]) -> None:
    """They are there until the mark is undone."""
    assert all(lease.name not in world.leases for lease in leases), "they are not open yet"
    for lease in leases:
        span = world.runs[lease.uid].spec.max_duration
        world.leases[lease.name] = lease
        world.terms[lease.name] = UNLIMITED if span is None else Term(lease.start + span, 0)
        world.open_by_run.setdefault(lease.uid, {})[lease.name] = None
        world.open_by_node.setdefault(lease.node, {})[lease.name] = None
    world.what_if.note(lambda: _forget(world, leases))
    for lease in leases:
        world.fleet.take(lease)


def _forget(world: World, leases: Sequence[Lease]) -> None:
    for lease in leases:
        discard(world.open_by_run, lease.uid, lease.name)
        discard(world.open_by_node, lease.node, lease.name)
        del world.terms[lease.name]
        del world.leases[lease.name]
