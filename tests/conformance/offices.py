"""Processes that want to decide, each with a clock that the test moves by hand."""

from tests.conformance.harness import MemoryHarness

from leasehold.core.objects.tenure import Holder, TenureRecord
from leasehold.core.units import Millis
from leasehold.ports.store import Store
from leasehold.ports.tenure import Margins, Tenure
from leasehold.shell.leadership.tenure import StoreTenures

KEY = "main"
MARGINS = Margins()


class HandClock:
    """Stands still until it is moved. Its wall may lie as it likes: nobody may care."""

    def __init__(self, monotonic: Millis = 0, wall: Millis = 1_763_164_810_000) -> None:
        self._monotonic = monotonic
        self.wall = wall

    def now(self) -> int:
        return self.wall + self._monotonic

    def monotonic(self) -> int:
        return self._monotonic

    async def sleep(self, ms: int) -> None:
        raise AssertionError(f"nothing here waits, also not {ms} ms")

    def move(self, ms: Millis) -> None:
        assert ms >= 0, "a monotonic clock does not go back"
        self._monotonic += ms


class Contender:
    """One start of one process."""

    def __init__(
        self, harness: MemoryHarness, store: Store, name: str, *, nonce: str = "1", start: int = 0
    ) -> None:
        self._harness = harness
        self.clock = HandClock(monotonic=start)
        self.holder = Holder(name=name, nonce=nonce)
        self.tenures = StoreTenures(store, self.clock, harness.tasks, margins=MARGINS)

    def acquire(self, *, above: int = 0) -> object:
        return self._harness.run(self.tenures.acquire(KEY, self.holder, above=above))

    def must_acquire(self, *, above: int = 0) -> Tenure:
        got = self.acquire(above=above)
        assert isinstance(got, Tenure), got
        return got

    def renew(self, tenure: Tenure) -> object:
        return self._harness.run(self.tenures.renew(tenure))

    def release(self, tenure: Tenure) -> object:
        return self._harness.run(self.tenures.release(tenure))

    def inspect(self) -> TenureRecord | None:
        return self._harness.run(self.tenures.inspect(KEY))

    def is_valid(self, tenure: Tenure) -> bool:
        return self.tenures.is_valid(tenure)


def wait_out(*contenders: Contender, ms: Millis = MARGINS.take + 1) -> None:
    for each in contenders:
        each.clock.move(ms)
