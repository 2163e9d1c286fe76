"""`leasehold restore --salvage`: a data folder out of a damaged one, and what of it is lost.

Called by `restore`. The damaged folder is only read. The reading is `adapters.sqlite.salvage`'s
and the proof `shell.archive.rescue`'s; here it is told. Agent records are not taken: whoever runs a
job writes into that very folder, so it can be moved but not copied.
"""

import tempfile
from pathlib import Path

import click

from leasehold.adapters.asyncio_runtime import AsyncioClock, AsyncioTasks, run
from leasehold.adapters.objects.storage import Key
from leasehold.adapters.sqlite.errors import BadStore, FileUnavailable
from leasehold.adapters.sqlite.salvage.objects import Salvaged, salvage
from leasehold.adapters.sqlite.store import SqliteStore
from leasehold.cli.ledger_source import archive_of, snapshot_of
from leasehold.cli.ledger_verify import verify_folder
from leasehold.cli.visible import say
from leasehold.shell.archive.backup import STORE, BadBackup, copy_others, unpack
from leasehold.shell.archive.rescue import LEDGERS, Rescue, carry_out, fill, plan_rescue
from leasehold.shell.folder import DataFolder
from leasehold.shell.read_chain import spans

NAMED_MAX = 20  # objects that are named one by one


def look_into(damaged: DataFolder, backup: Path | None) -> Rescue:
    """What can be had out of the folder, and out of an older backup where it is lost; tells it.

    Raises `BadStore`, `BadArchive`, `BadBackup` or `OSError`."""
    salvaged = salvage(damaged.store, proved=LEDGERS)
    filled = 0 if backup is None else _fill_from(salvaged, backup)
    rescue = plan_rescue(salvaged, archive_of(damaged))
    for line in (*_found(rescue, filled), *_lost(rescue)):
        say(line)
    return rescue


def write_out(rescue: Rescue, damaged: DataFolder, data: DataFolder) -> None:
    """Raises `BadStore`, `BadArchive` or `OSError`."""
    copy_others(damaged, data)
    data.store.touch(mode=0o600)
    fill(data.store, rescue)

    async def main(clock: AsyncioClock, tasks: AsyncioTasks) -> None:
        store = SqliteStore(data.store, tasks, clock)
        try:
            await carry_out(rescue, store)
        except FileUnavailable as error:
            raise BadStore(data.store, "cannot be written", error.why) from None
        finally:
            store.close()

    run(main)


def check(rescue: Rescue, data: DataFolder) -> None:
    """That the new folder is what was promised; of a ledger that is not whole it tells how."""
    with snapshot_of(data) as snapshot:
        wrong = verify_folder(snapshot, archive_of(data))
    if wrong is not None and rescue.is_ledger_whole:
        raise click.ClickException(f"the ledger that was salvaged does not verify: {wrong}")
    if wrong is not None:
        say(f"`leasehold ledger verify` will say: {wrong}")


def _fill_from(salvaged: Salvaged, backup: Path) -> int:
    with tempfile.TemporaryDirectory(prefix="leasehold-") as scratch:
        unpack(backup, Path(scratch))
        older = salvage(Path(scratch) / STORE)
    if older.prefix != salvaged.prefix:
        raise BadBackup(backup, "is of another store", "name a backup of this one")
    return salvaged.fill_from(older)


def _found(rescue: Rescue, filled: int) -> list[str]:
    salvaged = rescue.salvaged
    said = [f"{salvaged.path}: {_some(len(salvaged.objects), 'object')}"]
    if salvaged.damaged_pages or salvaged.wrong_frames:
        said.append(f"{_some(salvaged.damaged_pages, 'damaged page')}")
    if salvaged.wrong_frames:
        said.append(f"{_some(salvaged.wrong_frames, 'damaged place')} in its log")
    if salvaged.from_history:
        said.append(f"{_some(salvaged.from_history, 'object')} from the history of changes")
    if filled:
        said.append(f"{_some(filled, 'object')} from the backup")
    if rescue.from_archive:
        said.append(f"{_some(rescue.from_archive, 'batch', 'batches')} from the archive")
    if rescue.leases_made:
        said.append(f"{_some(len(rescue.leases_made), 'lease')} made again from the ledger")
    return ["; ".join(said)]


def _lost(rescue: Rescue) -> list[str]:
    """In sentences; the first says how the ledger stands."""
    said = []
    if rescue.missing:
        are = "are" if len(rescue.missing) > 1 else "is"
        word = "batches" if len(rescue.missing) > 1 else "batch"
        said.append(
            f"the ledger is not whole: {word} {spans(rescue.missing)} of {rescue.given_up} {are} "
            f"missing, and nothing after batch {rescue.seq} can be proved"
        )
    elif rescue.wrong is not None:
        said.append(f"the ledger does not verify: {rescue.wrong}")
    elif rescue.seq:
        said.append(f"the ledger is whole: batches 1 to {rescue.seq}, head {rescue.digest}")
    else:
        said.append("the ledger is empty")
    if rescue.is_head_made and not rescue.missing:
        said.append("its newest head is lost; the end of its chain is taken for it")
    if rescue.proofs_lost:
        said.append(f"lost, the proof of cuts: Resolution {', '.join(rescue.proofs_lost)}")
    said += _named("lost", rescue.lost)
    said += _named("lost in its newest version, an older one is taken", rescue.outdated)
    for key, how in rescue.differing:
        said += [f"{each}: {how}" for each in _named("has two copies, the first is taken", [key])]
    if not rescue.salvaged.is_sure:
        said.append("there may have been objects that are lost with their names")
        said += _named("left out, because it may be one that was deleted", rescue.doubtful)
    return said


def _named(what: str, keys: list[Key]) -> list[str]:
    said = [f"{what}: {kind} {'/'.join(filter(None, place))}" for kind, *place in keys[:NAMED_MAX]]
    left = len(keys) - NAMED_MAX
    return [*said, f"{what}: {left} more"] if left > 0 else said


def _some(count: int, word: str, words: str = "") -> str:
    return f"{count} {word if count == 1 else words or word + 's'}"
