"""The compactor: what it archives, when it works, and that it may die at any call."""

from collections.abc import Awaitable, Callable
from itertools import count
from pathlib import Path
from typing import TypeVar

import pytest
from tests.archive.history import make_compactor, plant_with_history, read
from tests.archive.looks import comparable
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
    """The simulated death of a process; no product code may handle it."""


class Mortal(Doomed):
    """A store whose user dies at call number `fatal`, also between two writes of one request."""

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
    """Return what users are shown of runs and envelopes."""
    runs = {uid: (explain(world, uid, now), who_pays(world, uid, now)) for uid in world.runs}
    return runs, {key: envelope_view(world, key, now) for key in world.envelopes}


def names(plant: Plant) -> dict[str, list[object]]:
    return {kind: [each["metadata"]["name"] for each in objects_of(plant.store, kind)]  # type: ignore[index]
            for kind in KINDS}  # fmt: skip


def compact(plant: Plant, folder: Path) -> Compacted | None:
    world, ledger, _ = read(plant)
    return at_once(make_compactor(plant, folder).run_once(world, ledger))


def test_compactor_archives_leases_of_ended_runs_and_keeps_views(tmp_path: Path) -> None:
    plant = plant_with_history()
    before = names(plant)
    world, ledger, _ = read(plant)
    shown = views(world, plant.kernel.now)
    compacted = at_once(make_compactor(plant, tmp_path).run_once(world, ledger))
    assert compacted is not None
    assert (compacted.seq, compacted.batches) == (plant.world.head.seq, len(before["LedgerBatch"]))
    assert compacted.leases == 2, "leases of the ended runs; those of the preempted run stay"
    after = names(plant)
    assert after["LedgerBatch"] == []
    assert len(after["Lease"]) == len(before["Lease"]) - 2
    assert after["Resolution"] == before["Resolution"]
    assert not any(name.startswith(("early", "gone")) for name in world.leases)
    again, _, _ = read(plant)
    assert comparable(world, plant.kernel.now) == comparable(again, plant.kernel.now)
    assert views(world, plant.kernel.now) == views(again, plant.kernel.now) == shown
    assert check_all(world, plant.kernel.now) == check_all(again, plant.kernel.now) == []
    assert ledger_problems(plant.store, Archive(tmp_path)) == []
    assert compact(plant, tmp_path) is None, "nothing is left to archive"


def test_deleted_lease_is_held_until_it_is_archived() -> None:
    plant = plant_with_history()
    name = next(lease.name for lease in plant.leases() if not lease.is_open)
    at_once(plant.store.delete("Lease", "", name, uid=None))
    held = at_once(plant.store.get("Lease", "", name))["metadata"]
    assert isinstance(held, dict)
    assert held["finalizers"] == [ARCHIVED]


def test_preempted_leases_and_resolution_are_archived_after_run_deletion(tmp_path: Path) -> None:
    plant = plant_with_history()
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
def test_compactor_recovers_from_death_at_any_store_call(after: bool, tmp_path: Path) -> None:
    undisturbed = plant_with_history()
    world, _, _ = read(undisturbed)
    shown = views(world, undisturbed.kernel.now)
    compact(undisturbed, tmp_path / "undisturbed")
    expected = names(undisturbed)
    for fatal in count(1):
        plant = plant_with_history()
        folder = tmp_path / str(fatal)
        world, ledger, _ = read(plant)
        mortal = Mortal(plant.store, plant.control, fatal, after=after)
        try:
            at_once(make_compactor(plant, folder, mortal).run_once(world, ledger))
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
def test_compactor_recovers_from_death_at_any_file_write(
    moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The death comes before a file has its final name, or after it."""
    target, name = (writer.os, "fsync") if moment == "os.fsync" else (writer, "sync_folder")
    real = getattr(target, name)
    for fatal in count(1):
        plant = plant_with_history()
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
                at_once(make_compactor(plant, folder).run_once(world, ledger))
            except Died:
                pass
            else:
                break
        assert ledger_problems(plant.store, Archive(folder)) == [], fatal
        compact(plant, folder)
        assert ledger_problems(plant.store, Archive(folder)) == [], fatal
        assert names(plant)["LedgerBatch"] == [], fatal
    assert fatal > 8


def test_archive_of_another_ledger_is_refused(tmp_path: Path) -> None:
    compact(plant_with_history(), tmp_path)
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


def test_compactor_without_archive_warns_when_store_has_too_many_objects() -> None:
    plant = plant_with_history()
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


def test_compactor_starts_when_enough_old_objects_exist(tmp_path: Path) -> None:
    plant = plant_with_history()
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


def test_compactor_starts_before_an_hour_has_passed_when_store_fills_up(tmp_path: Path) -> None:
    plant = plant_with_history()
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
    # With nothing left to archive, the compactor does not check again in every turn.
    assert at_once(compactor.step(world, ledger)) > MINUTE
