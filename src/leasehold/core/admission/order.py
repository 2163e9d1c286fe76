"""order: the order of the queue, by submission and then by name (Q1).

The order is defined only here. A requeued run keeps its place. Used by the queue, by grows and
preemption, and by the questions about the queue.
"""

from collections.abc import Iterable

from leasehold.core.facts import Run, Uid
from leasehold.core.units import Instant
from leasehold.core.world.world import World


def place_of(run: Run) -> tuple[Instant, int, str, str]:
    """Return the sort key of the queue; the lesser key is ahead."""
    return run.created, run.number, run.namespace, run.name


def is_ahead(run: Run, of: Run) -> bool:
    """Return whether `run` is ahead of the run `of` in the queue."""
    return place_of(run) < place_of(of)


def in_order(world: World, uids: Iterable[Uid]) -> list[Run]:
    """Return the existing runs among `uids` in queue order."""
    runs = [world.runs[uid] for uid in uids if uid in world.runs]
    return sorted(runs, key=place_of)
