"""`leasehold backup TO.tar`: copy a data folder without its pods, also while jobs run."""

import time
from pathlib import Path

import click

from leasehold.cli.data_folder import server_data_option
from leasehold.cli.ledger_source import archive_of, sentences, snapshot_of
from leasehold.cli.ledger_verify import verify_folder
from leasehold.core.units import plural
from leasehold.shell.archive.backup import BadBackup, take_backup
from leasehold.shell.config.folder import DataFolder


@click.command("backup")
@click.argument("to", type=click.Path(dir_okay=False, path_type=Path), metavar="TO.tar")
@server_data_option
def command(to: Path, data: DataFolder) -> None:
    """Write the store, archive, tokens, keys and configuration into one file (0600).

    A server may run in the meantime. The file is read back and checked before it gets its name.
    Keep it secret: it contains credentials for every user.
    """
    with snapshot_of(data) as snapshot:
        wrong = verify_folder(snapshot, archive_of(data))
        if wrong is not None:
            raise click.ClickException(f"the ledger does not verify: {wrong}")
    try:
        with sentences(data):
            contents = take_backup(
                data, archive_of(data).folder, to, now=time.time_ns() // 1_000_000
            )
    except BadBackup as bad:
        raise click.ClickException(str(bad)) from None
    except OSError as error:
        said = f"{error.filename or to}: {error.strerror}; name a file that can be written"
        raise click.ClickException(said) from None
    size = sum(member.bytes for member in contents.files.values())
    click.echo(f"backup: ok ({plural(len(contents.files), 'file')}, {size} bytes) in {to}")
