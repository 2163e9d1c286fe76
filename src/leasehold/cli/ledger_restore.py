"""`leasehold ledger restore`: put back batches that a cluster has lost.

The head's digest determines which batches are right. A batch from an archive or an exported file is
used only if the chain to the head needs it. Nothing else on the cluster is written.
"""

import asyncio
from collections.abc import Sequence
from itertools import chain
from pathlib import Path

import click
import msgspec

from leasehold.adapters.asyncio_runtime import AsyncioClock
from leasehold.adapters.kubeconfig.read import KubeContext
from leasehold.adapters.kubernetes.client import Client
from leasehold.adapters.kubernetes.store import KubernetesStore
from leasehold.cli.cluster_copy import ClusterCopy, ledger_options
from leasehold.cli.jsonlines import read_lines
from leasehold.cli.ledger_source import FILES, archive_of, snapshot_of
from leasehold.cli.ledger_verify import verify_folder
from leasehold.core.ledger.head import Head
from leasehold.core.names import Wire
from leasehold.core.objects.wire import part, text_at, whole_at
from leasehold.ports.store import AlreadyExists, StoreError
from leasehold.shell.archive.snapshot import Snapshot
from leasehold.shell.config.folder import DataFolder
from leasehold.shell.ledger.commit import HeadLost, batch_object
from leasehold.shell.ledger.read_chain import Lines, spans

_encode = msgspec.json.Encoder().encode


@click.command("restore")
@click.argument("files", nargs=-1, type=FILES, metavar="[FILE]...")
@click.option("--dry-run", is_flag=True, help="Only print what would be restored.")
@ledger_options
def restore(files: tuple[Path, ...], data: DataFolder, *, dry_run: bool) -> None:
    """Restore batches that a cluster has lost, from its archive and from exported files.

    The archive is the folder or bucket of --archive; files are those of `leasehold ledger export`,
    or ledger-*.jsonl of an archive. A batch is restored only if the head's digest depends on it.
    Controllers may run in the meantime. The command requires the permission to keep the ledger,
    which the controller and administrators of the cluster have. A data folder is restored from a
    backup instead (`leasehold restore`).
    """
    if not isinstance(data, ClusterCopy):
        raise click.UsageError(
            "this command is for a cluster (--kubeconfig); for a data folder, restore a backup "
            "(leasehold restore)"
        )
    with snapshot_of(data) as snapshot:
        wanted = _missing(snapshot, data, files)
    if not wanted:
        click.echo("ledger restore: no batch is missing")
        return
    numbers = spans([whole_at(each, "seq") or 0 for each in wanted])
    word = "batch" if len(wanted) == 1 else "batches"
    if dry_run:
        click.echo(f"ledger restore: would restore {word} {numbers}")
        return
    asyncio.run(_put_back(data.context(), wanted))
    click.echo(f"ledger restore: restored {word} {numbers}")
    with snapshot_of(data) as snapshot:
        wrong = verify_folder(snapshot, archive_of(data))
    if wrong is not None:
        raise click.ClickException(f"{data.title}: {wrong}")
    click.echo("ledger verify: ok")


def _missing(snapshot: Snapshot, data: DataFolder, files: Sequence[Path]) -> list[Wire]:
    """Return the exported lines of the committed batches that the store lacks.

    Raises `BatchLost` if neither the archive nor a file has such a batch, and `HeadLost`.
    """
    stored, spec = snapshot.objects("LedgerBatch"), snapshot.head()
    if stored and not spec:
        raise HeadLost(len(stored))
    head = Head(seq=whole_at(spec, "seq") or 0, digest=text_at(spec, "digest"))
    carried = snapshot.carried()
    offered: dict[str, Wire] = {}
    sources = chain(archive_of(data).lines(after=carried.seq), *map(read_lines, files))
    for line in sources:
        if carried.seq < (whole_at(line, "seq") or 0) <= head.seq:
            made = batch_object(line)
            offered[text_at(part(made, "metadata"), "name")] = made
    lines = Lines(head, after=carried.seq, digest=carried.digest, whole_after=head.seq)
    bodies = [_encode(each) for each in (*stored, *offered.values())]
    for look in (lines.note, lines.check):
        for body in bodies:
            look(body)
    there = {text_at(part(each, "metadata"), "name") for each in stored}
    return [part(offered[link.name], "spec") for link in lines.chain() if link.name not in there]


async def _put_back(context: KubeContext, wanted: list[Wire]) -> None:
    client = Client(lambda: context)
    try:
        store = KubernetesStore(client, AsyncioClock())
        for line in wanted:
            try:
                await store.create(batch_object(line))
            except AlreadyExists:
                continue  # another process was faster
            except StoreError as error:
                notes = " ".join(getattr(error, "__notes__", []))
                said = f"{context.server}: {error} {notes}".strip()
                raise click.ClickException(said) from None
    finally:
        await client.close()
