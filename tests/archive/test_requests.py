"""Compactions that are requested by another process, and what the requester is told."""

from collections.abc import Awaitable, Callable
from pathlib import Path

from tests.archive.history import plant_with_history, read
from tests.unit.shell.plant import Plant

from leasehold.core.units import DAY, Millis
from leasehold.shell.archive.compactor import Compactor
from leasehold.shell.archive.requests import PATIENCE, CompactionRequests, CompactionState
from leasehold.sim.scenario.ledger import at_once


class _Clock:
    """A clock on which each sleep of the waiting requester lets the owner work one step."""

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
    """The process that owns a ledger with a history; it compacts unless `rests` is set."""

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


def test_requester_is_told_how_many_leases_were_archived(tmp_path: Path) -> None:
    owner = _Owner(plant_with_history(), tmp_path)
    told = owner.ask()
    assert (told.ended, told.problem, owner.woken) == (True, "", 1)
    assert told.compacted is not None
    assert told.compacted.leases == 2
    assert owner.ask().compacted is None, "nothing is left"


def test_repeated_request_joins_the_compaction_in_progress(tmp_path: Path) -> None:
    owner = _Owner(plant_with_history(), tmp_path)
    owner.rests = True
    first = owner.ask()
    assert (first.ended, first.compacted) == (False, None)
    assert owner.ask().request == first.request, "a second requester gets the same request"
    owner.rests = False
    last = owner.ask(first.request)
    assert last.ended
    assert last.compacted is not None
    # Asking again for a finished request gives the same result and starts no new compaction.
    assert owner.ask(first.request) == last
    assert owner.compactor.requests == 1


def test_compaction_request_that_the_process_does_not_know_starts_a_new_one(tmp_path: Path) -> None:
    owner = _Owner(plant_with_history(), tmp_path)
    told = owner.ask("12345678-1")
    assert told.ended
    assert told.request != "12345678-1"


def test_requested_retention_applies_to_one_compaction_only(tmp_path: Path) -> None:
    owner = _Owner(plant_with_history(), tmp_path, keep=DAY)
    assert owner.ask().compacted is None, "nothing is a day old"
    assert owner.ask(keep=0).compacted is not None
    assert owner.ask().compacted is None


def test_request_without_archive_names_the_missing_setting(tmp_path: Path) -> None:
    told = _Owner(plant_with_history(), None).ask()
    assert told.ended
    assert "ledger.archive" in told.problem


def test_process_that_does_not_lead_gives_no_answer(tmp_path: Path) -> None:
    owner = _Owner(plant_with_history(), tmp_path)
    owner.leads = False
    assert at_once(owner.requests.ask("", None)) is None


def test_requester_waits_less_than_an_api_server_timeout() -> None:
    assert PATIENCE < 30_000
