"""Watches the health of the server's parts; reports each problem once, and once when it ends.

Run by `leasehold up` as a task. It reports what `/readyz` would show, even if nobody requests that.
"""

from collections.abc import Callable, Mapping

from leasehold.core.units import SECOND, Millis
from leasehold.ports.runtime import Clock

EVERY: Millis = SECOND

Parts = Callable[[], Mapping[str, str]]  # part -> what is wrong, or ""


class HealthWatch:
    def __init__(
        self,
        clock: Clock,
        parts: Parts,
        *,
        on_trouble: Callable[[str, str], None],
        on_relief: Callable[[str], None],
    ) -> None:
        """`on_trouble(part, why)` is called for each new problem of a part, `on_relief(part)` when
        it ends."""
        self._clock = clock
        self._parts = parts
        self._on_trouble = on_trouble
        self._on_relief = on_relief
        self._known: dict[str, str] = {}

    async def run(self) -> None:
        """Check all parts every `EVERY`; never return."""
        while True:
            self.look()
            await self._clock.sleep(EVERY)

    def look(self) -> None:
        for part, why in self._parts().items():
            before = self._known.get(part, "")
            self._known[part] = why
            if why and why != before:
                self._on_trouble(part, why)
            elif before and not why:
                self._on_relief(part)
