"""Deletes pods that ended long ago, as Kubernetes' pod garbage collector does on a cluster.

Run by every plane as a task. The controller keeps a pod that ended by itself, so that its log can
be read. This task deletes such a pod after a week, or earlier if there are too many of them. A pod
that may still run is never deleted.
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
    """Delete old ended pods every minute; never return.

    `world` must return a World with only committed facts: until a lease is closed, its pod is the
    only record of how it ended. `leads` confirms leadership; it is called after the pods and their
    versions were chosen. `keep`: the most ended pods that stay.
    """
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
    """Return deletions of the pods that ended more than a week ago, and of the oldest ones if more
    than `keep` have ended."""
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
