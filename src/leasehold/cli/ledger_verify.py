"""`leasehold ledger verify`: recompute the chain and its fold, and name the first disagreement."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import click

from leasehold.cli.data_folder import data_option
from leasehold.cli.jsonlines import Wire, read_lines
from leasehold.cli.ledger_source import FILES, archive_of, lines_of, snapshot_of, title_of
from leasehold.cli.visible import say
from leasehold.core.objects.lease import lease_to_wire
from leasehold.core.objects.wire import part, text_at, whole_at
from leasehold.core.verify import Disagreement, verify_lines, verify_objects
from leasehold.shell.archive.reader import Archive
from leasehold.shell.archive.snapshot import Snapshot, whole_ledger
from leasehold.shell.archive.writer import check_segment
from leasehold.shell.folder import DataFolder


@click.command("verify")
@click.argument("files", nargs=-1, type=FILES, metavar="[FILE]...")
@click.option("--objects", type=FILES, help="Compare with these objects too.")
@data_option
def verify(files: tuple[Path, ...], objects: Path | None, data: DataFolder) -> None:
    """Recompute every digest, fold the leases, name the first record that disagrees.

    Of exported files, in their order (those of an archive, ledger-*.jsonl, are such files); without
    any, of a data folder: its archive, store, objects and balances. A server may run meanwhile.
    """
    batches = count()
    if files:
        wrong = _verify_files(files, objects, batches)
    elif objects is not None:
        raise click.UsageError("--objects goes with files; a data folder has its own")
    else:
        with snapshot_of(data) as snapshot:
            wrong = verify_folder(snapshot, archive_of(data), batches)
    if wrong is not None:
        say(f"{title_of(files, data)}: {wrong}", err=True)
        raise SystemExit(1)
    click.echo(f"ledger verify: ok ({next(batches)} batches)")


def verify_folder(
    snapshot: Snapshot, archive: Archive, batches: "count[int]"
) -> Disagreement | None:
    """Archive and store as one chain, its objects wherever they are, and what is carried."""
    for index in archive.indices():
        check_segment(archive.folder, index)
    carried = snapshot.carried()
    lines = _counted(whole_ledger(snapshot, archive), batches)
    live = snapshot.objects("Lease")
    names = {text_at(part(each, "metadata"), "name") for each in live}
    archived = [
        lease_to_wire(lease)
        for lease in archive.leases(since=None, until=None)
        if lease.close_batch <= carried.seq and lease.name not in names
    ]
    resolutions = {
        text_at(part(each, "metadata"), "name"): each
        for each in (*archive.resolutions(upto=carried.seq), *snapshot.objects("Resolution"))
    }
    materialised = max(whole_at(snapshot.head(), "materialised") or 0, carried.seq)
    return verify_objects(
        lines,
        [*archived, *live],
        resolutions.values(),
        materialised=materialised,
        carried=carried,
    )


def _verify_files(
    files: tuple[Path, ...], objects: Path | None, batches: "count[int]"
) -> Disagreement | None:
    with lines_of(files, DataFolder(Path())) as lines:
        counted = _counted(lines, batches)
        if objects is None:
            return verify_lines(counted)
        stored = list(read_lines(objects))
        return verify_objects(counted, _of(stored, "Lease"), _of(stored, "Resolution"))


def _counted(lines: Iterator[Wire], batches: "count[int]") -> Iterator[Wire]:
    for line in lines:
        next(batches)
        yield line


def _of(stored: list[Wire], kind: str) -> list[Wire]:
    return [each for each in stored if each.get("kind") == kind]
