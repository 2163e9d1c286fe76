"""`leasehold restore`: fill a data folder from a backup, and begin a new generation of the
ledger."""

import shutil
import time
from pathlib import Path

import click

from leasehold.adapters.asyncio_runtime import AsyncioClock, AsyncioTasks, run
from leasehold.adapters.sqlite.store import SqliteStore
from leasehold.cli.config import read_config
from leasehold.cli.data_folder import data_option
from leasehold.cli.ledger_source import sentences, snapshot_of
from leasehold.cli.ledger_verify import verify_folder
from leasehold.ports.store import NotFound
from leasehold.shell.archive.backup import (
    BadBackup,
    check_empty,
    check_folder,
    generation_at,
    unpack,
)
from leasehold.shell.archive.reader import Archive
from leasehold.shell.config.folder import BadFolder, DataFolder
from leasehold.shell.ledger.commit import Ledger


@click.command("restore")
@click.argument("backup", type=click.Path(dir_okay=False, path_type=Path), metavar="FROM.tar")
@data_option
def command(backup: Path, data: DataFolder) -> None:
    """Restore a backup into a data folder, which must be empty or missing.

    The ledger starts a new generation, so that a server with an older copy cannot commit to this
    one. When the server starts, it looks for jobs that ran when the backup was taken.
    """
    try:
        check_empty(data.root)
        if not backup.exists():
            raise BadBackup(backup, "there is no such backup", "name another file")
        with sentences(data):
            data.prepare()
            _fill(backup, data)
    except (BadBackup, BadFolder) as bad:
        raise click.ClickException(str(bad)) from None
    except OSError as error:
        said = f"{error.filename or data.root}: {error.strerror}; check permissions and free space"
        raise click.ClickException(said) from None
    named = read_config(data, None).policy.archive
    if named and Path(named) != data.archive:
        click.echo(
            f"the configuration in the backup names the archive {named}; move "
            f"{data.archive} there before you start leasehold"
        )
    click.echo(f"restore: ok; start leasehold with `leasehold up --data {data.root}`")


def _fill(backup: Path, data: DataFolder) -> None:
    """Fill the folder completely, or leave it empty. A folder that was filled in part could be
    mistaken for a complete one."""
    try:
        unpack(backup, data.root)
        check_folder(data.root)
        begin_generation(data)
        with snapshot_of(data) as snapshot:
            wrong = verify_folder(snapshot, Archive(data.archive))
        if wrong is not None:
            raise BadBackup(
                backup, f"the ledger in the backup does not verify: {wrong}", "use another backup"
            )
    except BaseException:
        for each in data.root.iterdir():
            shutil.rmtree(each) if each.is_dir() else each.unlink()
        raise


def begin_generation(data: DataFolder) -> None:
    """Seal the head with an epoch above all epochs that any earlier copy of this ledger may have
    used."""

    async def main(clock: AsyncioClock, tasks: AsyncioTasks) -> None:
        store = SqliteStore(data.store, tasks, clock)
        try:
            ledger = Ledger(store, clock)
            try:
                await ledger.look()
            except NotFound:
                return  # a ledger that was never started
            await ledger.seal(generation_at(time.time_ns() // 1_000_000))
        finally:
            store.close()

    run(main)
