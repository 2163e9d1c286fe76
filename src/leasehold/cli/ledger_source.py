"""The sources of a ledger's lines: exported files, or a data folder with its archive.

Used by the subcommands of `leasehold ledger`, by `audit` and by `backup`. A problem with a file or
a folder ends the command with one sentence.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import msgspec

from leasehold.adapters.sqlite.errors import BadStore
from leasehold.app.archive_place import folder_at
from leasehold.cli.config import read_config
from leasehold.cli.jsonlines import read_lines
from leasehold.core.names import Wire
from leasehold.core.units import Instant, parse_instant
from leasehold.shell.archive.checkpoints import CheckpointLost
from leasehold.shell.archive.reader import Archive
from leasehold.shell.archive.segments import BadArchive
from leasehold.shell.archive.snapshot import Snapshot, whole_ledger
from leasehold.shell.config.folder import DataFolder
from leasehold.shell.ledger.commit import HeadLost
from leasehold.shell.ledger.read_chain import BatchLost
from leasehold.shell.loop.stored import Malformed

FILES = click.Path(path_type=Path)


def archive_of(data: DataFolder) -> Archive:
    """Return the archive that the folder's configuration names. If it names none, return the
    archive inside the folder."""
    named = read_config(data, None).policy.archive
    return Archive(folder_at(named) if named else data.archive)


@contextmanager
def snapshot_of(data: DataFolder) -> Iterator[Snapshot]:
    """Open a consistent snapshot of the store for the `with` block; a server may run meanwhile.
    Errors end the command."""
    data.renew()
    with sentences(data):
        snapshot = Snapshot(data.store)
        try:
            yield snapshot
        finally:
            snapshot.close()


@contextmanager
def sentences(data: DataFolder) -> Iterator[None]:
    """Turn each error that a damaged ledger raises in the `with` block into one sentence that ends
    the command."""
    try:
        yield
    except (BadStore, Malformed) as error:
        raise click.ClickException(str(error)) from None
    except BadArchive as error:
        raise click.ClickException(data.misfit(error)) from None
    except (BatchLost, HeadLost, CheckpointLost) as error:
        raise click.ClickException(data.loss(str(error))) from None
    except msgspec.DecodeError as error:
        raise click.ClickException(data.loss(f"is damaged ({error})")) from None


@contextmanager
def lines_of(files: tuple[Path, ...], data: DataFolder) -> Iterator[Iterator[Wire]]:
    """Provide the exported lines of the files, in order. Without files, provide those of the data
    folder and its archive."""
    if files:
        yield (line for file in files for line in read_lines(file))
    else:
        with snapshot_of(data) as snapshot:
            yield whole_ledger(snapshot, archive_of(data))


def title_of(files: tuple[Path, ...], data: DataFolder) -> str:
    return ", ".join(map(str, files)) if files else data.title


def instant_option(value: str | None, option: str) -> Instant | None:
    if value is None:
        return None
    at = parse_instant(value)
    if at is None:
        raise click.BadParameter(
            f"{value!r} is not a time; use 2026-11-15T00:00:10Z", param_hint=option
        )
    return at
