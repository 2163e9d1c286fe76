"""The time of the next turn, and whether the wall clock can be trusted.

Times in the ledger never go back. If the wall clock jumps against the monotonic clock, or is behind
the head's time, nothing that depends on the time is done until both clocks agree again. Meanwhile
time advances by the monotonic clock.
"""

from leasehold.core.units import Instant, Millis
from leasehold.ports.runtime import Clock


class Timekeeper:
    def __init__(self, clock: Clock, *, jump_max: Millis) -> None:
        self._clock = clock
        self._jump_max = jump_max
        self._wall = clock.now()
        self._monotonic = clock.monotonic()
        self.trusted = True
        self.jump: Millis = 0

    def read(self, head: Instant) -> Instant:
        """Return the time of the next turn, which is not before `head`, the time of the last batch.
        Update whether the wall clock is trusted."""
        wall, monotonic = self._clock.now(), self._clock.monotonic()
        expected = self._expected()
        self.jump = wall - expected
        self.trusted = self._agrees(head)
        if self.trusted:
            self._wall, self._monotonic = wall, monotonic
            return wall
        return max(head, expected)

    def look(self, head: Instant) -> Instant:
        """Return what `read` would return, without changing anything."""
        return self._clock.now() if self._agrees(head) else max(head, self._expected())

    def _expected(self) -> Instant:
        return self._wall + (self._clock.monotonic() - self._monotonic)

    def _agrees(self, head: Instant) -> bool:
        wall = self._clock.now()
        return abs(wall - self._expected()) <= self._jump_max and wall >= head
