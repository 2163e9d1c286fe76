"""Looks whether the parts of the server are well, and says so when one is not: once, and when it is
well again.

Run by `leasehold up` as a task. What it is told by is what `/readyz` answers; nobody has to ask.
"""

from collections.abc import Callable, Mapping

from leasehold.core.units import SECOND, Millis
from leasehold.ports.runtime import Clock

EVERY: Millis = SECOND

Parts = Callable[[], Mapping[str, str]]  # what is wrong with each, or ""


class HealthWatch:
    def __init__(
        self,
        clock: Clock,
        parts: Parts,
        *,
        on_trouble: Callable[[str, str], None],
        on_relief: Callable[[str], None],
    ) -> None:
        """`on_trouble(part, why)` for everything that has come to be wrong, `on_relief(part)` when
        it is not any more."""
        self._clock = clock
        self._parts = parts
        self._on_trouble = on_trouble
        self._on_relief = on_relief
        self._known: dict[str, str] = {}

    async def run(self) -> None:
        """For ever."""
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
