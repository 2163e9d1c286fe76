"""A lost or late answer is looked up in the record; only the holder's own write counts."""

import pytest

from leasehold.adapters.memory.store import MemoryStore
from leasehold.core.names import Wire
from leasehold.core.objects.tenure import Holder
from leasehold.core.units import Millis
from leasehold.ports.store import OutcomeUnknown, Store, Unavailable
from leasehold.ports.tenure import Expired, HeldByOther, Margins, Tenure, Unanswered
from leasehold.shell.leadership.tenure import StoreTenures
from leasehold.shell.leadership.time_limit import answered_within
from leasehold.sim.kernel import Kernel

KEY = "main"
MARGINS = Margins()
A, B = Holder(name="a", nonce="1"), Holder(name="b", nonce="1")


class FaultyStore(MemoryStore):
    """Treats the next writes as `plan` says: lost, unheard, refused, or late by a number of ms."""

    def __init__(self, kernel: Kernel) -> None:
        process = kernel.process("server")
        super().__init__(process.tasks, process.clock)
        self._clock = kernel.process("a").clock
        self.plan: list[str | int] = []

    async def update(self, obj: Wire, *, rehearse: bool = False) -> Wire:
        return await self._with_next_fault(super().update(obj, rehearse=rehearse))

    async def create(self, obj: Wire, *, rehearse: bool = False) -> Wire:
        return await self._with_next_fault(super().create(obj, rehearse=rehearse))

    async def _with_next_fault(self, write: object) -> Wire:
        fault = self.plan.pop(0) if self.plan else ""
        if fault in ("lost", "refused"):
            write.close()  # type: ignore[attr-defined]
            raise OutcomeUnknown if fault == "lost" else Unavailable
        stored: Wire = await write  # type: ignore[misc]
        if fault == "unheard":
            raise OutcomeUnknown
        if isinstance(fault, int):
            await self._clock.sleep(fault)
        return stored


class World:
    def __init__(self, *plan: str | int) -> None:
        self.kernel = Kernel(0)
        self.process = self.kernel.process("a")
        self.store = FaultyStore(self.kernel)
        self.store.plan = list(plan)
        self.tenures = self.of(self.store)

    def of(self, store: Store) -> StoreTenures:
        return StoreTenures(store, self.process.clock, self.process.tasks, margins=MARGINS)

    def acquire(self, holder: Holder = A) -> object:
        return self.kernel.complete(self.tenures.acquire(KEY, holder), process=self.process)

    def renew(self, tenure: Tenure) -> object:
        return self.kernel.complete(self.tenures.renew(tenure), process=self.process)

    def release(self, tenure: Tenure) -> object:
        return self.kernel.complete(self.tenures.release(tenure), process=self.process)

    def held(self, *plan: str | int) -> Tenure:
        tenure = self.acquire()
        assert isinstance(tenure, Tenure), tenure
        self.store.plan = list(plan)
        return tenure

    def wait(self, ms: Millis) -> None:
        self.kernel.advance_to(self.kernel.now + ms)


def test_grant_with_a_lost_answer_is_found_in_the_record() -> None:
    world = World("unheard")
    tenure = world.acquire()
    assert isinstance(tenure, Tenure)
    assert (tenure.epoch, tenure.since) == (1, 0)


@pytest.mark.parametrize("fault", ["lost", "refused"])
def test_lost_or_refused_request_grants_nothing(fault: str) -> None:
    world = World(fault)
    assert isinstance(world.acquire(), Unanswered)
    tenure = world.acquire()
    assert isinstance(tenure, Tenure)
    assert tenure.epoch == 1


def test_tenure_with_a_late_answer_counts_from_its_request() -> None:
    world = World(MARGINS.timeout + 1)
    tenure = world.acquire()
    assert isinstance(tenure, Tenure)
    assert tenure.since == 0
    world.wait(MARGINS.hold - world.kernel.now - 1)
    assert world.tenures.is_valid(tenure)
    world.wait(1)
    assert not world.tenures.is_valid(tenure)


def test_answer_after_the_hold_time_grants_nothing() -> None:
    world = World(0)
    acquiring = world.tenures.acquire(KEY, A)
    world.store.plan = [1]
    world.process.tasks.spawn("acquire", acquiring)
    world.kernel.settle()
    world.process.pause()
    world.wait(MARGINS.hold)
    world.process.resume()
    world.wait(0)
    assert world.tenures.age(Tenure(key=KEY, holder=A, epoch=1, version=1, since=0)) is None
    again = world.acquire()
    assert isinstance(again, Tenure)
    assert again.epoch == 2, "the record named us, and we never believed it"


def test_older_record_does_not_confirm_a_lost_renewal() -> None:
    """The record shows an older write of this process: the lost renewal may still arrive."""
    world = World()
    tenure = world.held("lost")
    world.wait(MARGINS.renew)
    assert isinstance(world.renew(tenure), Unanswered)
    assert world.tenures.age(tenure) == MARGINS.renew


def test_renewal_with_a_lost_answer_is_found_in_the_record() -> None:
    world = World()
    tenure = world.held("unheard")
    world.wait(MARGINS.renew)
    assert isinstance(world.renew(tenure), Tenure)
    assert world.tenures.age(tenure) == 0


def test_renewal_answered_after_the_hard_stop_is_expired() -> None:
    world = World()
    tenure = world.held(1_500)
    world.wait(MARGINS.hold - 1_000)
    assert world.renew(tenure) == Expired(late_by=500)
    assert not world.tenures.is_valid(tenure)
    again = world.acquire()
    assert isinstance(again, Tenure)
    assert again.epoch == 2


def test_tenure_is_invalid_even_if_its_release_was_lost() -> None:
    world = World()
    tenure = world.held("lost")
    assert isinstance(world.release(tenure), Unanswered)
    assert not world.tenures.is_valid(tenure)
    other = world.of(world.store)
    got = world.kernel.complete(other.acquire(KEY, B), process=world.process)
    assert isinstance(got, HeldByOther)


def test_sole_process_takes_over_a_held_tenure_without_waiting() -> None:
    world = World()
    world.held()
    alone = StoreTenures(
        world.store, world.process.clock, world.process.tasks, margins=MARGINS, is_alone=True
    )
    got = world.kernel.complete(alone.acquire(KEY, B), process=world.process)
    assert isinstance(got, Tenure)
    assert got.epoch == 2


def test_call_answered_during_a_pause_longer_than_its_timeout_is_unknown() -> None:
    kernel = Kernel(0)
    process = kernel.process("a")
    outcomes: list[object] = []

    async def call() -> str:
        await process.clock.sleep(5)
        return "yes"

    async def ask() -> None:
        try:
            outcomes.append(await answered_within(process.clock, process.tasks, 10, call))
        except OutcomeUnknown:
            outcomes.append("unknown")

    process.tasks.spawn("ask", ask())
    kernel.advance_to(1)
    process.pause()
    kernel.advance_to(11)
    process.resume()
    kernel.advance_to(20)
    assert outcomes == ["unknown"]
