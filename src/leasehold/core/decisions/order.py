"""order — who is ahead of whom in line: by arrival, then by name.

The one place that knows; a requeued run keeps its place. Asked by the queue, by grows, by cuts
(whom one may not be cut for) and by whoever tells people about the line.
"""

from collections.abc import Iterable

from leasehold.core.facts import Run, Uid
from leasehold.core.units import Instant
from leasehold.core.world.world import World


def place_of(run: Run) -> tuple[Instant, int, str, str]:
    """Whoever has the lesser one is ahead."""
    return run.created, run.number, run.namespace, run.name


def is_ahead(run: Run, of: Run) -> bool:
    return place_of(run) < place_of(of)


def in_order(world: World, uids: Iterable[Uid]) -> list[Run]:
    """Those of these runs that are there, first come first."""
    runs = [world.runs[uid] for uid in uids if uid in world.runs]
    return sorted(runs, key=place_of)
