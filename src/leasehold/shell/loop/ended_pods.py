"""Deletes pods that ended long ago, like Kubernetes' pod garbage collector, where there is none.

Run by every plane as a task. The controller keeps a pod that ended by itself, so that its log can
be read. This task deletes it after a week, or as the oldest of too many, but never a pod that may
still run.
"""

from collections.abc import Awaitable, Callable

from leasehold.core.units import DAY, MINUTE, Instant, Millis
from leasehold.core.world.world import World
from leasehold.ports.runtime import Clock
from leasehold.ports.store import Delete, Store, StoreError, Write

KEEP = 1_000
KEEP_FOR: Millis = 7 * DAY
EVERY: Millis = MINUTE
ROUND_MAX = 256


async def sweep_ended_pods(
    store: Store,
    clock: Clock,
    world: Callable[[], World | None],
    *,
    leads: Callable[[], Awaitable[bool]],
    keep: int = KEEP,
) -> None:
    """Sweep every minute; never return.
    `world`: must contain only committed facts, because until its lease is closed, the pod is the
    only record of how it ended. `leads`: confirms leadership, after the pods and their versions
    have been chosen."""
    while True:
        await clock.sleep(EVERY)
        known = world()
        old = [] if known is None else _old(known, keep, clock.now())
        for first in range(0, len(old), ROUND_MAX):
            if not await leads():
                break
            try:
                await store.write_all(old[first : first + ROUND_MAX])
            except StoreError:
                break  # retry in the next round, a minute later


def _old(world: World, keep: int, now: Instant) -> list[Write]:
    """Return deletions of pods that ended a week ago and of the oldest of too many."""
    ended = sorted(
        (
            (pod.finished_at or 0, key)
            for keys in world.pods_by_run.values()
            for key in keys
            if (pod := world.pods[key]).has_ended and key not in world.open_by_pod
        ),
    )
    surplus = max(0, len(ended) - keep)
    gone = [
        world.pods[key]
        for number, (at, key) in enumerate(ended)
        if number < surplus or (at and at < now - KEEP_FOR)
    ]
    return [Delete("Pod", pod.namespace, pod.name, pod.uid, 0, pod.version) for pod in gone]
