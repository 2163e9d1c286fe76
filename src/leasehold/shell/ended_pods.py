"""Sweeps away pods that ended long ago, where no cluster does it: as Kubernetes' own pod collector.

Run by every plane as a task. The controller leaves a pod that ended by itself, so that its log
can be read; here it goes when a week has passed, or as the oldest of too many. It never touches one
that may still run.
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
    """For ever. `world` is one that says nothing but what is committed: a pod is the only word of
    how it ended until its lease is closed. `leads` asks whether we still decide here, after it is
    known which pods are to go, and as they were then."""
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
                break  # the next round is a minute away


def _old(world: World, keep: int, now: Instant) -> list[Write]:
    """Those that ended a week ago, and the oldest of too many."""
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
