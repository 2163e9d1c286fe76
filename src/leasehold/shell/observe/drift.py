"""Checks periodically that leases, pods and balances agree, and reports when they do not.

Run as a task. While a pod is being created or has just ended, its records may disagree for a
moment. So only a mismatch that is found twice, `AGAIN` apart, counts as drift. Nothing is repaired
here; the loop does that.
"""

from collections.abc import Callable

from leasehold.control.audit import audit
from leasehold.core.units import MINUTE, SECOND, Millis
from leasehold.core.world.world import World
from leasehold.ports.runtime import Clock

EVERY: Millis = 10 * MINUTE
AGAIN: Millis = 30 * SECOND
_KINDS = ("lease", "pod")  # first word of an audit sentence; any other sentence concerns a balance

OnDrift = Callable[[str, str], None]


class DriftWatch:
    def __init__(self, clock: Clock, world: Callable[[], World | None], on_drift: OnDrift) -> None:
        """`on_drift(kind, words)` is called once for each new mismatch."""
        self._clock = clock
        self._world = world
        self._on_drift = on_drift
        self._told: frozenset[str] = frozenset()

    async def run(self) -> None:
        """Check every `EVERY`, and report each new mismatch; never return."""
        while True:
            await self._clock.sleep(EVERY)
            suspects = self._look()
            if not suspects:
                self._told = frozenset()
                continue
            await self._clock.sleep(AGAIN)
            drift = suspects & self._look()
            for words in sorted(drift - self._told):
                first = words.partition(" ")[0]
                self._on_drift(first if first in _KINDS else "balance", words)
            self._told = drift

    def _look(self) -> frozenset[str]:
        world = self._world()
        if world is None:
            return frozenset()
        now = max(self._clock.now(), world.head.instant)
        return frozenset(audit(world, list(world.pods.values()), now))
