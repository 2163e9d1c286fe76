"""A look at an archived instant: what overlaps it and nothing else, from files that are right."""

import asyncio
from pathlib import Path

import pytest
from tests.archive.history import a_compactor, a_past, read
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
from leasehold.shell.query import Questions
from leasehold.sim.scenario.ledger import at_once


def all_of(folder: Path) -> list[Lease]:
    """File by file, and line by line."""
    archive = Archive(folder)
    return [
        lease_from_wire(wire)
        for index in archive.indices()
        for wire in read_part(folder, index, LEASES)
    ]


def test_every_window_has_what_overlaps_it(archived: Path) -> None:
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


def test_it_knows_how_far_back_it_reaches_without_reading_any_lease(
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


def test_only_what_is_asked_for_is_decoded(archived: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_file_that_changes_after_it_was_read_is_checked_again(
    archived: Path, tmp_path: Path
) -> None:
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


def test_what_is_kept_in_memory_is_bounded(archived: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "TIMES_MAX", 2)
    archive = Archive(archived)
    whole = [each.name for each in archive.leases(since=None, until=None)]
    assert whole == [each.name for each in all_of(archived)]
    assert not archive.learn_one()


def test_the_fleet_of_an_archived_instant(tmp_path: Path) -> None:
    """As it was before the leases went into the archive; and the slider reaches back to them."""
    plant = a_past()
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
    at_once(a_compactor(plant, tmp_path).run_once(world, ledger))
    assert any(not each.is_open for each in Archive(tmp_path).leases(since=None, until=None))
    assert seen(Archive(tmp_path)) == before
    assert parse_instant(str(before[0][1])) == instants[0]  # type: ignore[index]
