"""`leasehold ledger replay --at T`: show the state at an instant, computed from the ledger
alone."""

from pathlib import Path

import click

from leasehold.app.visible import say
from leasehold.cli.cluster_copy import ledger_options
from leasehold.cli.ledger_source import FILES, instant_option, lines_of, title_of
from leasehold.core.facts import Lease
from leasehold.core.ledger.verify import Fold
from leasehold.core.names import Wire
from leasehold.core.units import format_gpu_hours, format_instant, plural
from leasehold.shell.config.folder import DataFolder


@click.command("replay")
@click.argument("files", nargs=-1, type=FILES, metavar="[FILE]...")
@click.option("--at", "instant", required=True, help="A time, such as 2026-11-15T00:00:10Z.")
@ledger_options
def replay(files: tuple[Path, ...], instant: str, data: DataFolder) -> None:
    """Show the state at a time: open leases, budgets, and what each budget had spent.

    Reads exported files in their order; without files, a data folder and its archive.
    """
    at = instant_option(instant, "--at")
    assert at is not None, "this option is required"
    fold = Fold()
    seen = 0
    with lines_of(files, data) as lines:
        for line in lines:
            if _instant(line) > at:
                break
            wrong = fold.step(line)
            if wrong is not None:
                say(f"{title_of(files, data)}: {wrong}", err=True)
                raise SystemExit(1)
            seen += 1
    open_leases = plural(len(_open(fold, at)), "open lease")
    click.echo(f"{format_instant(at)}: {plural(seen, 'batch', 'batches')}, {open_leases}")
    for lease in _open(fold, at):
        slots = ",".join(map(str, lease.slots))
        say(
            f"  {lease.name}  {lease.run_key}  {lease.node}[{slots}]  {lease.role}  "
            f"{lease.payer}  since {format_instant(lease.start)}"
        )
    spent: dict[str, int] = {}
    for lease in fold.leases.values():
        if lease.start <= at:
            end = at if lease.end is None else min(lease.end, at)
            spent[lease.payer] = spent.get(lease.payer, 0) + lease.gpus * (end - lease.start)
    for payer, amount in sorted(spent.items()):
        say(f"  {payer} has spent {format_gpu_hours(amount)} GPU-hours")


def _instant(line: Wire) -> int:
    """Return the time of the batch in a line. Return 0 if the line has no batch; `ledger verify`
    reports such a line."""
    batch = line.get("batch")
    instant = batch.get("instant") if isinstance(batch, dict) else None
    return instant if isinstance(instant, int) else 0


def _open(fold: Fold, at: int) -> list[Lease]:
    leases = sorted(fold.leases.values(), key=lambda lease: (lease.batch, lease.name))
    return [each for each in leases if each.start <= at and (each.end is None or each.end > at)]
