"""The compactor dies at every call it makes, and finds everything right when it comes back."""

from collections.abc import Awaitable, Callable
from itertools import count
from pathlib import Path
from typing import TypeVar

import pytest
from tests.archive.history import a_compactor, a_past, read
from tests.archive.looks import told
from tests.unit.shell.plant import Doomed, Plant

from leasehold.control.views.answers import explain, who_pays
from leasehold.control.views.numbers import envelope_view
from leasehold.core.objects.lease import ARCHIVED
from leasehold.core.units import HOUR, MINUTE
from leasehold.core.world.invariants import check_all
from leasehold.core.world.world import World
from leasehold.shell.archive import writer
from leasehold.shell.archive.compactor import Compacted, Compactor
from leasehold.shell.archive.reader import Archive
from leasehold.sim.scenario.ledger import at_once, ledger_problems, objects_of

T = TypeVar("T")
KINDS = ("Lease", "LedgerBatch", "LedgerCheckpoint", "Reservation", "Resolution")


class Died(BaseException):
    """Nobody in there may handle it."""


class Mortal(Doomed):
    """A store whose user dies at its call number `fatal`; of several writes, between any two."""

    async def _call(self, _verb: str, _kind: str, call: Callable[[], Awaitable[T]]) -> T:
        self.calls += 1
        if self.calls == self._fatal and not self._after:
            raise Died
        try:
            return await call()
        finally:
            if self.calls == self._fatal:
                raise Died


def views(world: World, now: int) -> object:
    """What people are shown."""
    runs = {uid: (explain(world, uid, now), who_pays(world, uid, now)) for uid in world.runs}
    return runs, {key: envelope_view(world, key, now) for key in world.envelopes}


def names(plant: Plant) -> dict[str, list[object]]:
    return {kind: [each["metadata"]["name"] for each in objects_of(plant.store, kind)]  # type: ignore[index]
            for kind in KINDS}  # fmt: skip


def compact(plant: Plant, folder: Path) -> Compacted | None:
    world, ledger, _ = read(plant)
    return at_once(a_compactor(plant, folder).run_once(world, ledger))


def test_what_goes_and_what_stays(tmp_path: Path) -> None:
    plant = a_past()
    before = names(plant)
    world, ledger, _ = read(plant)
    shown = views(world, plant.kernel.now)
    compacted = at_once(a_compactor(plant, tmp_path).run_once(world, ledger))
    assert compacted is not None
    assert (compacted.seq, compacted.batches) == (plant.world.head.seq, len(before["LedgerBatch"]))
    assert compacted.leases == 2, "those of the runs that ended; who was cut may still ask why"
    after = names(plant)
    assert after["LedgerBatch"] == []
    assert len(after["Lease"]) == len(before["Lease"]) - 2
    assert after["Resolution"] == before["Resolution"]
    assert not any(name.startswith(("early", "gone")) for name in world.leases)
    again, _, _ = read(plant)
    assert told(world, plant.kernel.now) == told(again, plant.kernel.now)
    assert views(world, plant.kernel.now) == views(again, plant.kernel.now) == shown
    assert check_all(world, plant.kernel.now) == check_all(again, plant.kernel.now) == []
    assert ledger_problems(plant.store, Archive(tmp_path)) == []
    assert compact(plant, tmp_path) is None, "nothing is left to do"


def test_leases_are_held_until_they_are_archived() -> None:
    plant = a_past()
    name = next(lease.name for lease in plant.leases() if not lease.is_open)
    at_once(plant.store.delete("Lease", "", name, uid=None))
    held = at_once(plant.store.get("Lease", "", name))["metadata"]
    assert isinstance(held, dict)
    assert held["finalizers"] == [ARCHIVED]


def test_the_cut_go_with_their_runs(tmp_path: Path) -> None:
    plant = a_past()
    compact(plant, tmp_path)
    for run in ("a/fixed", "a/other", "b/big"):
        at_once(plant.store.delete("Run", *run.split("/"), uid=None))
    plant.wait(600_000)
    compacted = compact(plant, tmp_path)
    assert compacted is not None
    assert compacted.resolutions == 1
    after = names(plant)
    assert [after[kind] for kind in KINDS if kind != "LedgerCheckpoint"] == [[], [], [], []]
    assert ledger_problems(plant.store, Archive(tmp_path)) == []
    archive = Archive(tmp_path)
    assert len(list(archive.resolutions())) == 1
    spent: dict[str, int] = {}
    for lease in archive.leases(since=None, until=None):
        assert lease.end is not None
        spent[lease.payer] = spent.get(lease.payer, 0) + lease.gpu_ms(lease.end)
    world, _, _ = read(plant)
    now = plant.kernel.now
    assert spent == {payer: world.accounts.of(payer).used_ms(now) for payer in spent}
    assert sum(spent.values()) > 0


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_death_at_any_call_of_the_store(after: bool, tmp_path: Path) -> None:
    undisturbed = a_past()
    world, _, _ = read(undisturbed)
    shown = views(world, undisturbed.kernel.now)
    compact(undisturbed, tmp_path / "undisturbed")
    expected = names(undisturbed)
    for fatal in count(1):
        plant = a_past()
        folder = tmp_path / str(fatal)
        world, ledger, _ = read(plant)
        mortal = Mortal(plant.store, plant.control, fatal, after=after)
        try:
            at_once(a_compactor(plant, folder, mortal).run_once(world, ledger))
        except Died:
            found, _, _ = read(plant)
            assert views(found, plant.kernel.now) == shown, fatal
            assert check_all(found, plant.kernel.now) == [], fatal
            assert ledger_problems(plant.store, Archive(folder)) == [], fatal
            compact(plant, folder)
            assert names(plant) == expected, fatal
            found, _, _ = read(plant)
            assert views(found, plant.kernel.now) == shown, fatal
        else:
            break
    assert fatal > 20


@pytest.mark.parametrize("moment", ["os.fsync", "sync_folder"])
def test_death_at_any_write_of_a_file(
    moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before a file has its name, and when it has."""
    target, name = (writer.os, "fsync") if moment == "os.fsync" else (writer, "sync_folder")
    real = getattr(target, name)
    for fatal in count(1):
        plant = a_past()
        folder = tmp_path / str(fatal)
        calls = count(1)

        def die(given: object, calls: "count[int]" = calls, fatal: int = fatal) -> None:
            if next(calls) == fatal:
                raise Died
            real(given)

        world, ledger, _ = read(plant)
        with monkeypatch.context() as patched:
            patched.setattr(target, name, die)
            try:
                at_once(a_compactor(plant, folder).run_once(world, ledger))
            except Died:
                pass
            else:
                break
        assert ledger_problems(plant.store, Archive(folder)) == [], fatal
        compact(plant, folder)
        assert ledger_problems(plant.store, Archive(folder)) == [], fatal
        assert names(plant)["LedgerBatch"] == [], fatal
    assert fatal > 8


def test_another_ledgers_archive_is_refused(tmp_path: Path) -> None:
    compact(a_past(), tmp_path)
    other = Plant(nodes=1)
    other.submit("a/only")
    other.wait(600_000)
    said: list[str] = []
    world, ledger, _ = read(other)
    compactor = Compactor(
        other.store, other.user.clock, folder=tmp_path, keep_closed=0, max_objects=9,
        alert=said.append,
    )  # fmt: skip
    before = names(other)
    assert at_once(compactor.run_once(world, ledger)) is None
    assert "belongs to another ledger" in said[0]
    assert names(other) == before


def test_without_an_archive_it_says_so_in_time() -> None:
    plant = a_past()
    said: list[str] = []
    world, ledger, _ = read(plant)
    count_now = len(world.leases) + len(ledger.chain)
    for most, alerts in ((count_now * 2, 0), (count_now, 1)):
        compactor = Compactor(
            plant.store, plant.user.clock, folder=None, keep_closed=0, max_objects=most,
            alert=said.append,
        )  # fmt: skip
        at_once(compactor.step(world, ledger))
        assert len(said) == alerts
    assert "no archive" in said[0]
    assert "ledger.archive" in said[0]


def test_by_itself_it_waits_until_it_is_worth_it(tmp_path: Path) -> None:
    plant = a_past()
    world, ledger, _ = read(plant)
    hour = 3_600_000
    for keep, most, runs in ((0, 1000, False), (0, 10, True), (2 * hour, 10, False)):
        compactor = Compactor(
            plant.store, plant.user.clock, folder=tmp_path / str(most), keep_closed=keep,
            max_objects=most,
        )  # fmt: skip
        while at_once(compactor.step(world, ledger)) == 0:
            pass
        assert (compactor.last is not None) == runs, (keep, most)


def test_a_store_that_fills_up_does_not_wait_for_its_hour(tmp_path: Path) -> None:
    plant = a_past()
    compactor = Compactor(
        plant.store, plant.user.clock, folder=tmp_path, keep_closed=0, max_objects=10
    )
    fresh = Plant(nodes=2)
    fresh.wait(MINUTE)
    young, ledger, _ = read(fresh)
    assert at_once(compactor.step(young, ledger)) == HOUR
    plant.wait(2 * MINUTE)
    world, ledger, _ = read(plant)
    while at_once(compactor.step(world, ledger)) == 0:
        pass
    assert compactor.last is not None
    # Where nothing is left to gain it is not looked at again with every turn.
    assert at_once(compactor.step(world, ledger)) > MINUTE
