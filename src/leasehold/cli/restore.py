"""`leasehold restore`: a data folder from a backup or a damaged one, outranking earlier owners."""

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from leasehold.adapters.asyncio_runtime import AsyncioClock, AsyncioTasks, run
from leasehold.adapters.sqlite.store import SqliteStore
from leasehold.cli.config import read_config
from leasehold.cli.data_folder import data_option
from leasehold.cli.ledger_source import sentences, snapshot_of
from leasehold.cli.ledger_verify import verify_folder
from leasehold.cli.salvage import check, look_into, write_out
from leasehold.ports.store import NotFound
from leasehold.shell.archive.backup import (
    BadBackup,
    check_empty,
    check_folder,
    generation_at,
    unpack,
)
from leasehold.shell.archive.reader import Archive
from leasehold.shell.folder import BadFolder, DataFolder
from leasehold.shell.ledger import Ledger


@click.command("restore")
@click.argument(
    "backup", required=False, type=click.Path(dir_okay=False, path_type=Path), metavar="[FROM.tar]"
)
@click.option(
    "--salvage",
    "damaged",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="Out of a damaged data folder, which is only read; a backup fills what is lost there.",
)
@click.option("--partial", is_flag=True, help="With --salvage: go on without what is lost.")
@data_option
def command(backup: Path | None, data: DataFolder, *, damaged: Path | None, partial: bool) -> None:
    """Make a data folder from a backup, or out of a damaged one; it must be empty or not there.

    The ledger begins a new generation: whoever still works with an older copy can commit nothing
    into this one. Jobs that ran when the backup was taken are looked for when the server starts.

    Out of a damaged folder comes everything up to the last commit, as far as it can be read. What
    is lost is named, and then nothing is written without --partial. If batches of the ledger are
    missing, --partial goes back to the one before: later leases are forgotten, their jobs ended.
    """
    if partial and damaged is None:
        raise click.UsageError("--partial needs --salvage: of a backup all is restored or nothing")
    if damaged is None and backup is None:
        raise click.UsageError("name a backup, or a damaged data folder with --salvage")
    try:
        check_empty(data.root)
        if backup is not None and not backup.exists():
            raise BadBackup(backup, "there is no such backup", "name another file")
        with sentences(data):
            if damaged is not None:
                _salvage(DataFolder(damaged), backup, data, is_partial=partial)
            elif backup is not None:
                data.prepare()
                _fill(backup, data)
    except (BadBackup, BadFolder) as bad:
        raise click.ClickException(str(bad)) from None
    except OSError as error:
        said = f"{error.filename or data.root}: {error.strerror}; check rights and space"
        raise click.ClickException(said) from None
    named = read_config(data, None).policy.archive
    if named and Path(named) != data.archive and damaged is None:
        click.echo(f"its configuration names the archive {named}: move {data.archive} there first")
    if damaged is not None and DataFolder(damaged).agent.is_dir():
        click.echo(f"for jobs that still run, move {DataFolder(damaged).agent} to {data.agent}")
    click.echo(f"restore: ok; start it with `leasehold up --data {data.root}`")


def _salvage(
    damaged: DataFolder, backup: Path | None, data: DataFolder, *, is_partial: bool
) -> None:
    rescue = look_into(damaged, backup)
    if not rescue.is_whole and not is_partial:
        said = "not everything is there, and nothing was written; "
        if backup is None:
            said += "name a backup as well (leasehold restore FROM.tar --salvage …), or "
        raise click.ClickException(said + "go on without what is lost (--partial)")
    data.prepare()
    with _all_or_nothing(data):
        write_out(rescue, damaged, data)
        begin_generation(data)
        check(rescue, data)


def _fill(backup: Path, data: DataFolder) -> None:
    with _all_or_nothing(data):
        unpack(backup, data.root)
        check_folder(data.root)
        begin_generation(data)
        with snapshot_of(data) as snapshot:
            wrong = verify_folder(snapshot, Archive(data.archive))
        if wrong is not None:
            raise BadBackup(backup, f"its ledger does not verify: {wrong}", "use another backup")


@contextmanager
def _all_or_nothing(data: DataFolder) -> Iterator[None]:
    """A folder that is half filled would be taken for a whole one."""
    try:
        yield
    except BaseException:
        for each in data.root.iterdir():
            shutil.rmtree(each) if each.is_dir() else each.unlink()
        raise


def begin_generation(data: DataFolder) -> None:
    """Seals the head with an epoch above all that any copy of this ledger can have used."""

    async def main(clock: AsyncioClock, tasks: AsyncioTasks) -> None:
        store = SqliteStore(data.store, tasks, clock)
        try:
            ledger = Ledger(store, clock)
            try:
                await ledger.look()
            except NotFound:
                return  # a ledger that never began
            await ledger.seal(generation_at(time.time_ns() // 1_000_000))
        finally:
            store.close()

    run(main)
