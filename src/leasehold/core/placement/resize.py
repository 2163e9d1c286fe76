"""resize: the widths that an elastic run may grow to, and the groups it gives up to shrink."""

from collections.abc import Iterator

from leasehold.core.facts import Lease, Relation, RunSpec
from leasehold.core.units import Instant
from leasehold.core.world.world import World


def grow_targets(spec: RunSpec, width: int) -> Iterator[int]:
    """Yield the widths of the run's grid above `width`, from the desired one downwards (E1)."""
    assert spec.malleable is not None
    grid = spec.malleable
    target = grid.desired_gpus
    while target > width:
        yield target
        target -= grid.step_gpus


def groups_to_give_up(groups: dict[int, list[Lease]], spec: RunSpec, width: int) -> list[int]:
    """Return the groups to give up to reach the desired width (E2).

    Groups that borrowed money pays for come first, then those with the highest index.
    """
    assert spec.malleable is not None
    excess = width - max(spec.malleable.desired_gpus, spec.malleable.min_gpus)
    count = -(-excess // spec.group_gpus)
    order = sorted(groups, key=lambda index: (not _is_borrowed(groups[index]), -index))
    return order[: max(0, count)]


def _is_borrowed(leases: list[Lease]) -> bool:
    return any(lease.relation is Relation.BORROWED for lease in leases)


def may_resize(world: World, uid: str, now: Instant) -> Instant:
    """Return the first instant at which the run may be resized (E1).

    That is `resize.interval` after the last resize, but not before now.
    """
    book = world.books.get(uid)
    if book is None or book.resized_at is None:
        return now
    return max(now, book.resized_at + world.policy.resize_interval)
