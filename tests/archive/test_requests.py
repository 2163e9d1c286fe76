"""A compaction that somebody asks for from elsewhere, and what that one hears of it."""

from collections.abc import Awaitable, Callable
from pathlib import Path

from tests.archive.history import a_past, read
from tests.unit.shell.plant import Plant

from leasehold.core.units import DAY, Millis
from leasehold.shell.archive.compactor import Compactor
from leasehold.shell.archive.requests import PATIENCE, CompactionRequests, CompactionState
from leasehold.sim.scenario.ledger import at_once


class _Clock:
    """While somebody waits, the owner works: one step for each look at the answer."""

    def __init__(self, work: Callable[[], Awaitable[object]]) -> None:
        self._work = work
        self._now = 0

    def now(self) -> int:
        return self._now

    def monotonic(self) -> Millis:
        return self._now

    async def sleep(self, ms: Millis) -> None:
        self._now += ms
        await self._work()


class _Owner:
    """Who keeps the ledger of a past, and works on it unless it `rests`."""

    def __init__(self, plant: Plant, folder: Path | None, *, keep: Millis = 0) -> None:
        self.world, self.ledger, _ = read(plant)
        self.compactor = Compactor(
            plant.store, plant.user.clock, folder=folder, keep_closed=keep, max_objects=1000
        )
        self.rests = False
        self.leads = True
        self.woken = 0
        self.requests = CompactionRequests(
            self.compactor,
            _Clock(self._work),
            wake=self._wake,
            leads=lambda: self.leads,
        )

    def ask(self, request: str = "", keep: Millis | None = None) -> CompactionState:
        told = at_once(self.requests.ask(request, keep))
        assert told is not None
        return told

    def _wake(self) -> None:
        self.woken += 1

    async def _work(self) -> None:
        if not self.rests:
            await self.compactor.step(self.world, self.ledger)


def test_whoever_asks_hears_what_left_the_store(tmp_path: Path) -> None:
    owner = _Owner(a_past(), tmp_path)
    told = owner.ask()
    assert (told.ended, told.problem, owner.woken) == (True, "", 1)
    assert told.compacted is not None
    assert told.compacted.leases == 2
    assert owner.ask().compacted is None, "nothing is left"


def test_who_asks_again_while_it_goes_on_hears_of_the_same(tmp_path: Path) -> None:
    owner = _Owner(a_past(), tmp_path)
    owner.rests = True
    first = owner.ask()
    assert (first.ended, first.compacted) == (False, None)
    assert owner.ask().request == first.request, "somebody else, meanwhile"
    owner.rests = False
    last = owner.ask(first.request)
    assert last.ended
    assert last.compacted is not None
    # Its end is told as often as it is asked for, and nothing begins anew.
    assert owner.ask(first.request) == last
    assert owner.compactor.requests == 1


def test_another_process_knows_nothing_of_it_and_begins(tmp_path: Path) -> None:
    owner = _Owner(a_past(), tmp_path)
    told = owner.ask("12345678-1")
    assert told.ended
    assert told.request != "12345678-1"


def test_a_span_that_is_named_counts_once(tmp_path: Path) -> None:
    owner = _Owner(a_past(), tmp_path, keep=DAY)
    assert owner.ask().compacted is None, "nothing is a day old"
    assert owner.ask(keep=0).compacted is not None
    assert owner.ask().compacted is None


def test_without_an_archive_it_is_said(tmp_path: Path) -> None:
    told = _Owner(a_past(), None).ask()
    assert told.ended
    assert "ledger.archive" in told.problem


def test_who_has_lost_the_ledger_says_nothing_of_it(tmp_path: Path) -> None:
    owner = _Owner(a_past(), tmp_path)
    owner.leads = False
    assert at_once(owner.requests.ask("", None)) is None


def test_nobody_waits_longer_than_an_api_server_would() -> None:
    assert PATIENCE < 30_000
