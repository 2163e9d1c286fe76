"""Sweeps away pods that ended long ago, where no cluster does it: as Kubernetes' own pod collector.

Run by every plane as a task. The controller leaves a pod that ended by itself, so that its log
can be read; here the oldest go when there are too many. It never touches one that may still run.
"""

from collections.abc import Awaitable, Callable

from leasehold.core.units import MINUTE, Millis
from leasehold.core.world.world import World
from leasehold.ports.runtime import Clock
from leasehold.ports.store import Delete, Store, StoreError, Write

KEEP = 1_000
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
        if known is None or len(known.pods) <= keep:
            continue
        ended = sorted(
            (pod for pod in known.pods.values() if pod.has_ended and pod.run_uid),
            key=lambda pod: (pod.finished_at or 0, pod.key),
        )
        old: list[Write] = [
            Delete("Pod", pod.namespace, pod.name, pod.uid, 0, pod.version)
            for pod in ended[: max(0, len(ended) - keep)]
            if pod.key not in known.open_by_pod
        ]
        for first in range(0, len(old), ROUND_MAX):
            if not await leads():
                break
            try:
                await store.write_all(old[first : first + ROUND_MAX])
            except StoreError:
                break  # the next round is a minute away
