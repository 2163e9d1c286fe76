"""`leasehold ledger compact`: archive old records and remove them from the store, now.

If no server runs, the command compacts the store itself, under the store's lock. If a server runs,
only that server may write, so the command asks it to compact and waits. On a cluster, the command
asks the leading replica.
"""

import os
import signal
import time
from pathlib import Path

import click
import msgspec

from leasehold.adapters.asyncio_runtime import AsyncioClock, AsyncioTasks, run
from leasehold.adapters.sqlite.errors import BadStore
from leasehold.adapters.sqlite.lock import FileLock
from leasehold.adapters.sqlite.store import SqliteStore
from leasehold.cli.cluster_compact import ask_cluster
from leasehold.cli.config import read_config
from leasehold.cli.data_folder import ledger_data_option
from leasehold.cli.ledger_source import archive_of, sentences
from leasehold.core.units import Millis, parse_span, plural
from leasehold.ports.store import NotFound
from leasehold.shell.archive.compactor import ANSWER, Compacted, CompactionAnswer, Compactor
from leasehold.shell.config.config import Config
from leasehold.shell.config.folder import DataFolder
from leasehold.shell.ledger.commit import Ledger
from leasehold.shell.loop.materialise import materialise
from leasehold.shell.loop.recover import read_world

WAIT_S = 600
_POLL_S = 0.1


@click.command("compact")
@ledger_data_option
@click.option(
    "--keep", help="How long closed leases stay in the store.  [default: ledger.keepClosed]"
)
@click.option(
    "--kubeconfig", default="", help="Use the cluster of this kubeconfig instead of a data folder."
)
@click.option(
    "--context", default="", help="Use the cluster of this context instead of a data folder."
)
def compact(data: DataFolder | None, keep: str | None, kubeconfig: str, context: str) -> None:
    """Archive and verify old batches and leases, then remove them from the store.

    Balances, books and reports stay the same; `ledger verify` and `ledger export` read archive and
    store as one. A server also does this on its own. On a cluster the leader does it, into its own
    ledger.archive; the caller needs the verb compact on ledgers.rq.davidlangworthy.io (the role
    leasehold-operator has it).
    """
    if keep is not None and parse_span(keep) is None:
        raise click.BadParameter(f"{keep!r} is not a duration; use 7d or 12h", param_hint="--keep")
    if data is None or kubeconfig or context:
        _tell(*ask_cluster(kubeconfig, context, keep or ""))
    else:
        _tell(*_compact_folder(data, keep))


def _tell(compacted: Compacted | None, problem: str) -> None:
    if problem:
        raise click.ClickException(problem)
    if compacted is None:
        click.echo("nothing is old enough to be archived")
        return
    click.echo(
        f"archived up to batch {compacted.seq}: {plural(compacted.batches, 'batch', 'batches')}, "
        f"{plural(compacted.leases, 'lease')} and "
        f"{plural(compacted.resolutions, 'resolution')} left the store"
    )


def _compact_folder(data: DataFolder, keep: str | None) -> tuple[Compacted | None, str]:
    config = read_config(data, None)
    span = config.policy.keep_closed if keep is None else parse_span(keep)
    assert span is not None, "it was read before"
    with sentences(data):
        if not data.store.is_file():
            raise BadStore(data.store, "is not there", "name a server's data folder (--data)")
        holder = _holder(data.store)
        if holder is None:
            return _compact_here(data, config, span)
        if keep is not None:
            raise click.UsageError(
                f"a server runs (pid {holder}) and uses ledger.keepClosed of its own "
                "configuration; leave --keep out, or stop the server first"
            )
        return _ask(holder, archive_of(data).folder / ANSWER)


def _holder(store: Path) -> int | None:
    """Return the id of the process that has the store open; None if there is none."""
    try:
        FileLock(store).release()
    except BadStore as error:
        pid = store.with_name(store.name + ".lock").read_text("ascii").strip()
        if not pid.isdigit():
            raise error from None
        return int(pid)
    return None


def _compact_here(data: DataFolder, config: Config, keep: Millis) -> tuple[Compacted | None, str]:
    # Another `ledger compact` takes the holder of the lock for a server and would signal it.
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    troubles: list[str] = []

    async def main(clock: AsyncioClock, tasks: AsyncioTasks) -> Compacted | None:
        store = SqliteStore(data.store, tasks, clock)
        try:
            ledger = Ledger(store, clock)
            try:
                await ledger.look()
            except NotFound:
                return None  # no server ever started with it
            found = await read_world(
                store, clock, ledger, policy=config.policy, labels=config.labels
            )
            for batch in found.unmaterialised:  # not yet materialised according to the head
                await materialise(store, clock, found.world, batch)
                ledger.note_materialised(batch.seq)
            compactor = Compactor(
                store,
                clock,
                folder=archive_of(data).folder,
                keep_closed=keep,
                max_objects=config.policy.max_objects,
                alert=troubles.append,
            )
            return await compactor.run_once(found.world, ledger)
        finally:
            store.close()

    compacted = run(main)
    return compacted, "; ".join(troubles)


def _ask(pid: int, answer: Path) -> tuple[Compacted | None, str]:
    asked = time.time_ns() // 1_000_000
    try:
        os.kill(pid, signal.SIGUSR1)
    except (ProcessLookupError, PermissionError) as error:
        return None, f"cannot send the request to the server (pid {pid}): {error.strerror}"
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        found = _answered(answer)
        if found is not None and found.at >= asked:
            return found.compacted, found.problem
        time.sleep(_POLL_S)
    return None, f"the server (pid {pid}) did not answer within {WAIT_S} s; see its log"


def _answered(path: Path) -> CompactionAnswer | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=CompactionAnswer)
    except (OSError, msgspec.DecodeError):
        return None
