"""Archived leases by time: a query returns exactly those that overlap it, from checked files."""

import asyncio
from pathlib import Path

import pytest
from tests.archive.history import make_compactor, plant_with_history, read
from tests.archive.test_segments import archived as archived
from tests.archive.test_segments import copied

from leasehold.core.facts import Lease
from leasehold.core.objects.access import Caller, CallerRole
from leasehold.core.objects.lease import lease_from_wire
from leasehold.core.units import Millis, format_instant, parse_instant
from leasehold.core.world.world import World
from leasehold.shell.archive import reader
from leasehold.shell.archive.reader import Archive
from leasehold.shell.archive.segments import LEASES, BadArchive, read_part
from leasehold.shell.queries.query import Questions
from leasehold.sim.scenario.ledger import at_once


def all_of(folder: Path) -> list[Lease]:
    """Return all archived leases in the order of files and lines."""
    archive = Archive(folder)
    return [
        lease_from_wire(wire)
        for index in archive.indices()
        for wire in read_part(folder, index, LEASES)
    ]


def test_query_of_any_window_returns_the_overlapping_leases(archived: Path) -> None:
    leases = all_of(archived)
    edges = sorted({at for each in leases for at in (each.start, each.end or 0)})
    edges = [edges[0] - 1, *edges, edges[-1] + 1]
    archive = Archive(archived)
    for low in edges:
        for high in [each for each in edges if each > low] + [low + 1]:
            wanted = [
                each.name
                for each in leases
                if each.start < high and ((each.end or 0) > low or each.end == each.start >= low)
            ]
            assert [each.name for each in archive.leases(since=low, until=high)] == wanted
    assert [each.name for each in archive.leases(since=None, until=None)] == [
        each.name for each in leases
    ]


def test_archive_knows_its_earliest_lease_without_reading_leases(
    archived: Path, tmp_path: Path
) -> None:
    leases = all_of(archived)
    folder = copied(archived, tmp_path / "copy")
    for path in folder.glob("leases-*"):
        path.unlink()
    archive = Archive(folder)
    assert archive.leases_from() == min(each.start for each in leases)
    empty = Archive(tmp_path / "none")
    assert empty.leases_from() == 0


def test_query_decodes_only_leases_of_its_window(
    archived: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = Archive(archived)
    while archive.learn_one():
        pass
    decoded: list[str] = []

    def counted(wire: dict[str, object]) -> Lease:
        lease = lease_from_wire(wire)
        decoded.append(lease.name)
        return lease

    monkeypatch.setattr(reader, "lease_from_wire", counted)
    at = min(each.start for each in all_of(archived))
    found = [each.name for each in archive.leases(since=at, until=at + 1)]
    assert decoded == found
    assert 0 < len(found) < len(all_of(archived))


def test_file_changed_after_reading_is_refused(archived: Path, tmp_path: Path) -> None:
    folder = copied(archived, tmp_path / "copy")
    archive = Archive(folder)
    assert list(archive.leases(since=None, until=None))
    path = next(each for each in sorted(folder.glob("leases-*")) if each.stat().st_size)
    path.write_bytes(path.read_bytes().replace(b'"attempt":1', b'"attempt":2', 1))
    with pytest.raises(BadArchive, match="does not match its index"):
        list(archive.leases(since=None, until=None))
    path.unlink()
    with pytest.raises(BadArchive, match="cannot be read"):
        list(archive.leases(since=None, until=None))


def test_query_is_complete_with_bounded_memory(
    archived: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "TIMES_MAX", 2)
    archive = Archive(archived)
    whole = [each.name for each in archive.leases(since=None, until=None)]
    assert whole == [each.name for each in all_of(archived)]
    assert not archive.learn_one()


def test_fleet_at_past_instant_is_unchanged_by_archiving(tmp_path: Path) -> None:
    """The fleet at a past instant is the same before and after its leases are archived, and the
    earliest instant stays the same."""
    plant = plant_with_history()
    world, ledger, _ = read(plant)
    admin = Caller(user="admin", role=CallerRole.ADMIN)
    instants = sorted({each.start for each in world.leases.values()})

    def seen(archive: Archive | None) -> list[object]:
        async def at_rest(_: Millis) -> World | None:
            return world

        questions = Questions(at_rest, plant.user.clock, archive=archive)
        asked = [{"at": format_instant(at)} for at in instants]
        answers = [asyncio.run(questions.ask(admin, "fleet", each, None)) for each in asked]
        return [[each["nodes"], each["earliest"]] for each in answers]

    before = seen(None)
    at_once(make_compactor(plant, tmp_path).run_once(world, ledger))
    assert any(not each.is_open for each in Archive(tmp_path).leases(since=None, until=None))
    assert seen(Archive(tmp_path)) == before
    assert parse_instant(str(before[0][1])) == instants[0]  # type: ignore[index]
