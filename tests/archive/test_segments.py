"""Segments are checked before they are used: a flipped byte in any file is found."""

from pathlib import Path

import pytest
from tests.archive.history import make_compactor, plant_with_history, read

from leasehold.shell.archive import writer
from leasehold.shell.archive.reader import Archive
from leasehold.shell.archive.segments import LEASES, LEDGER, RESOLUTIONS, BadArchive, read_part
from leasehold.shell.archive.writer import check_segment
from leasehold.sim.scenario.ledger import at_once, objects_of


@pytest.fixture(scope="module")
def archived(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("archive")
    plant = plant_with_history()
    world, ledger, _ = read(plant)
    at_once(make_compactor(plant, folder).run_once(world, ledger))
    return folder


def copied(archived: Path, to: Path) -> Path:
    to.mkdir()
    for path in archived.iterdir():
        (to / path.name).write_bytes(path.read_bytes())
    return to


def check_all_of(folder: Path) -> None:
    for index in Archive(folder).indices():
        check_segment(folder, index)


def test_archive_has_several_valid_segments_that_only_their_owner_can_read(archived: Path) -> None:
    assert len(Archive(archived).indices()) > 2
    check_all_of(archived)
    assert {path.stat().st_mode & 0o777 for path in archived.iterdir()} == {0o600}


@pytest.mark.parametrize("kind", [LEDGER, LEASES, RESOLUTIONS, "segment"])
def test_flipped_byte_in_any_file_is_found(kind: str, archived: Path, tmp_path: Path) -> None:
    files = [path for path in archived.glob(f"{kind}-*") if path.stat().st_size]
    assert files
    for number, path in enumerate(files):
        content = path.read_bytes()
        for place in range(0, len(content), max(1, len(content) // 15)):
            folder = copied(archived, tmp_path / f"{number}-{place}")
            flipped = bytearray(content)
            flipped[place] ^= 1
            (folder / path.name).write_bytes(flipped)
            with pytest.raises(BadArchive):
                check_all_of(folder)


@pytest.mark.parametrize("kind", [LEDGER, LEASES, RESOLUTIONS, "segment"])
def test_missing_archive_file_is_reported_by_name(
    kind: str, archived: Path, tmp_path: Path
) -> None:
    folder = copied(archived, tmp_path / "copy")
    gone = sorted(folder.glob(f"{kind}-*"))[0]
    gone.unlink()
    with pytest.raises(BadArchive) as error:
        check_all_of(folder)
    assert "segment" in str(error.value) if kind == "segment" else gone.name in str(error.value)


def test_compactor_keeps_objects_if_written_files_are_corrupt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant = plant_with_history()
    world, ledger, _ = read(plant)
    before = [len(objects_of(plant.store, kind)) for kind in ("Lease", "LedgerBatch")]
    real = writer.put_file

    def rot(path: Path, content: bytes) -> None:
        real(
            path, content.replace(b"Completed", b"Cancelled") if "leases" in path.name else content
        )

    said: list[str] = []
    compactor = make_compactor(plant, tmp_path)
    compactor._alert = said.append
    with monkeypatch.context() as patched:
        patched.setattr(writer, "put_file", rot)
        assert at_once(compactor.run_once(world, ledger)) is None
    assert "does not match its index" in said[0]
    assert [len(objects_of(plant.store, kind)) for kind in ("Lease", "LedgerBatch")] == before
    assert at_once(compactor.run_once(world, ledger)) is not None


def test_query_of_leases_opens_only_files_of_its_window(
    archived: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    everything = list(Archive(archived).leases(since=None, until=None))
    assert len(everything) == len({lease.name for lease in everything}) > 3
    ends = sorted(lease.end or 0 for lease in everything)
    middle = ends[len(ends) // 2]
    for since, until in ((None, middle), (middle, None), (ends[0] + 1, middle), (0, 1)):
        got = Archive(archived).leases(since=since, until=until)
        low, high = since or 0, until or 1 << 62
        assert sorted(lease.name for lease in got) == sorted(
            lease.name for lease in everything
            if lease.start < high and (lease.end or 0) > low
        )  # fmt: skip
    folder = copied(archived, tmp_path / "copy")
    for index in Archive(folder).indices():
        if index.leases_to < middle:
            (folder / index.files[LEASES].name).unlink()  # the query below does not need it
    assert list(Archive(folder).leases(since=middle + 1, until=None)) == list(
        Archive(archived).leases(since=middle + 1, until=None)
    )
    index = Archive(archived).indices()[0]
    assert next(read_part(archived, index, LEDGER))["seq"] == 1
