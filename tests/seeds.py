"""How many random seeds a test plays: as many as fit into a budget of CPU seconds, or all.

`make test` has to end within minutes (`--few-seeds`), so each test that draws seeds takes the
fixture `budget` and asks it for them. `make test-seeds` plays every seed.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

Seed = TypeVar("Seed")


class Budget:
    """Counts CPU seconds of this process, so that a busy machine plays as many seeds as an idle
    one."""

    def __init__(self, *, is_limited: bool, cpu_s: Callable[[], float] = time.process_time) -> None:
        self._is_limited = is_limited
        self._cpu_s = cpu_s
        self.played = 0
        self.left_out = 0

    def of(self, cpu_s: float, seeds: Iterable[Seed]) -> Iterator[Seed]:
        """Yield seeds in order: the first one always, then until `cpu_s` have been used."""
        began = self._cpu_s()
        for number, seed in enumerate(seeds):
            if self._is_limited and number and self._cpu_s() - began >= cpu_s:
                self.left_out += 1
                continue
            self.played += 1
            yield seed
