"""`leasehold ledger verify`: recompute the chain and what its batches add up to, and name the first
disagreement.
"""

from collections.abc import Iterator
from pathlib import Path

import click

from leasehold.app.visible import say
from leasehold.cli.cluster_copy import ledger_options
from leasehold.cli.jsonlines import read_lines
from leasehold.cli.ledger_source import FILES, archive_of, lines_of, snapshot_of, title_of
from leasehold.core.ledger.chain import GENESIS
from leasehold.core.ledger.verify import Disagreement, verify_lines, verify_objects
from leasehold.core.names import Wire
from leasehold.core.objects.lease import lease_to_wire
from leasehold.core.objects.wire import part, text_at, whole_at
from leasehold.core.units import plural
from leasehold.shell.archive.reader import Archive
from leasehold.shell.archive.snapshot import Snapshot, whole_ledger
from leasehold.shell.archive.writer import check_segment
from leasehold.shell.config.folder import DataFolder

DIGEST_CHARS_MIN = 16  # of a digest that was written down


@click.command("verify")
@click.argument("files", nargs=-1, type=FILES, metavar="[FILE]...")
@click.option("--objects", type=FILES, help="Also compare with these objects.")
@click.option(
    "--head",
    default="",
    metavar="DIGEST@SEQ",
    help="Check that the ledger continues from this head, which was noted before; 16 characters "
    "of the digest are enough.",
)
@click.option("--print-head", is_flag=True, help="Also print the head, so that you can note it.")
@ledger_options
def verify(
    files: tuple[Path, ...], objects: Path | None, head: str, print_head: bool, data: DataFolder
) -> None:
    """Recompute every digest and every balance, and name the first record that disagrees.

    Of exported files, in their order (those of an archive, ledger-*.jsonl, are such files); without
    any, of a data folder (its archive, store, objects and balances) or, with --kubeconfig, of a
    cluster. A server may run in the meantime. If you note a head (--print-head), you can prove
    later with --head that nothing before it was rewritten since.
    """
    batches = _Seen(_head_of(head))
    if files:
        wrong = _verify_files(files, objects, batches)
    elif objects is not None:
        raise click.UsageError(
            "--objects is only for exported files; a data folder has its own objects"
        )
    else:
        with snapshot_of(data) as snapshot:
            wrong = verify_folder(snapshot, archive_of(data), batches)
    if wrong is not None:
        say(f"{title_of(files, data)}: {wrong}", err=True)
        raise SystemExit(1)
    if batches.problem:
        say(f"{title_of(files, data)}: {batches.problem}", err=True)
        raise SystemExit(1)
    goes_on = f", which continue from {head}" if head else ""
    click.echo(f"ledger verify: ok ({plural(batches.count, 'batch', 'batches')}{goes_on})")
    if print_head:
        click.echo(f"{batches.digest or GENESIS}@{batches.seq}")


class _Seen:
    """Counts the batches that are verified, remembers the last one, and looks for the head given
    with `--head`."""

    def __init__(self, wanted: tuple[str, int] | None) -> None:
        self.count = 0
        self.seq = 0
        self.digest = ""
        self._wanted = wanted
        self._met = ""

    def note(self, line: Wire) -> None:
        self.count += 1
        self.seq, self.digest = whole_at(line, "seq") or 0, text_at(line, "digest")
        if self._wanted is not None and self.seq == self._wanted[1]:
            self._met = self.digest

    @property
    def problem(self) -> str:
        """Why the ledger does not contain the head given with `--head`; "" if it does, or if none
        was given."""
        if self._wanted is None:
            return ""
        digest, seq = self._wanted
        if not self._met:
            return (
                f"batch {seq}, whose digest was {digest}, is not in the ledger, which ends at "
                f"{self.seq}"
            )
        if self._met.startswith(digest):
            return ""
        return (
            f"batch {seq} has the digest {self._met}, not {digest}: the ledger has another history"
        )


def _head_of(text: str) -> tuple[str, int] | None:
    if not text:
        return None
    digest, at, seq = text.partition("@")
    is_digest = DIGEST_CHARS_MIN <= len(digest) <= 64 and set(digest) <= set("0123456789abcdef")
    if not at or not is_digest or not (seq.isascii() and seq.isdigit() and len(seq) < 16):
        raise click.BadParameter(
            f"{text[:100]!r} is not a head; use DIGEST@SEQ as `ledger verify` prints it",
            param_hint="--head",
        )
    return digest, int(seq)


def verify_folder(
    snapshot: Snapshot, archive: Archive, batches: "_Seen | None" = None
) -> Disagreement | None:
    """Verify archive and store as one chain, with all objects and the checkpoint. Return the first
    disagreement; None if there is none."""
    for index in archive.indices():
        check_segment(archive.folder, index)
    carried = snapshot.carried()
    lines = _counted(whole_ledger(snapshot, archive), batches)
    live = snapshot.objects("Lease")
    names = {text_at(part(each, "metadata"), "name") for each in live}
    archived = [
        lease_to_wire(lease)
        for lease in archive.leases(since=None, until=None)
        if (lease.closed is None or lease.closed.batch <= carried.seq) and lease.name not in names
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
    files: tuple[Path, ...], objects: Path | None, batches: _Seen
) -> Disagreement | None:
    with lines_of(files, DataFolder(Path())) as lines:
        counted = _counted(lines, batches)
        if objects is None:
            return verify_lines(counted)
        stored = list(read_lines(objects))
        return verify_objects(counted, _of(stored, "Lease"), _of(stored, "Resolution"))


def _counted(lines: Iterator[Wire], batches: _Seen | None) -> Iterator[Wire]:
    for line in lines:
        if batches is not None:
            batches.note(line)
        yield line


def _of(stored: list[Wire], kind: str) -> list[Wire]:
    return [each for each in stored if each.get("kind") == kind]
