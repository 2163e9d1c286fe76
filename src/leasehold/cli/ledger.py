"""`leasehold ledger …`: re-check a chain and its fold, or see the World as it was at an instant.

Works on exported files (`ledger.jsonl`, `objects.jsonl`), so that nobody has to trust the program
that wrote them while it runs.
"""

from itertools import count
from pathlib import Path

import click

from leasehold.cli.jsonlines import Wire, read_lines
from leasehold.core.facts import Lease
from leasehold.core.units import format_gpu_hours, format_instant, parse_instant
from leasehold.core.verify import Fold, verify_lines, verify_objects


@click.group("ledger")
def command() -> None:
    """Verify and replay the ledger."""


@command.command("verify")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--objects", type=click.Path(path_type=Path), help="Compare with these objects too.")
def verify(file: Path, objects: Path | None) -> None:
    """Recompute every digest, fold the leases, name the first record that disagrees."""
    batches = count()
    lines = (line for line, _ in zip(read_lines(file), batches))
    if objects is None:
        wrong = verify_lines(lines)
    else:
        stored = list(read_lines(objects))
        wrong = verify_objects(lines, _of(stored, "Lease"), _of(stored, "Resolution"))
    if wrong is not None:
        click.echo(f"{file}: {wrong}", err=True)
        raise SystemExit(1)
    click.echo(f"ledger verify: ok ({next(batches)} batches)")


@command.command("replay")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--at", "instant", required=True, help="An instant, as 2026-11-15T00:00:10Z.")
def replay(file: Path, instant: str) -> None:
    """What the ledger says was true at an instant: open leases, budgets, what each had spent."""
    at = parse_instant(instant)
    if at is None:
        raise click.BadParameter(f"{instant!r} is no instant; write 2026-11-15T00:00:10Z")
    fold = Fold()
    seen = 0
    for line in read_lines(file):
        if _instant(line) > at:
            break
        wrong = fold.step(line)
        if wrong is not None:
            click.echo(f"{file}: {wrong}", err=True)
            raise SystemExit(1)
        seen += 1
    click.echo(f"{format_instant(at)}: {seen} batches, {len(_open(fold, at))} open leases")
    for lease in _open(fold, at):
        slots = ",".join(map(str, lease.slots))
        click.echo(f"  {lease.name}  {lease.run_key}  {lease.node}[{slots}]  {lease.role}  "
                   f"{lease.payer}  since {format_instant(lease.start)}")  # fmt: skip
    spent: dict[str, int] = {}
    for lease in fold.leases.values():
        if lease.start <= at:
            end = at if lease.end is None else min(lease.end, at)
            spent[lease.payer] = spent.get(lease.payer, 0) + lease.gpus * (end - lease.start)
    for payer, amount in sorted(spent.items()):
        click.echo(f"  {payer} has spent {format_gpu_hours(amount)} GPU-hours")


def _instant(line: Wire) -> int:
    """The batch's own; a line without one is left to `verify` to name."""
    batch = line.get("batch")
    instant = batch.get("instant") if isinstance(batch, dict) else None
    return instant if isinstance(instant, int) else 0


def _open(fold: Fold, at: int) -> list[Lease]:
    leases = sorted(fold.leases.values(), key=lambda lease: (lease.batch, lease.name))
    return [each for each in leases if each.start <= at and (each.end is None or each.end > at)]


def _of(stored: list[Wire], kind: str) -> list[Wire]:
    return [each for each in stored if each.get("kind") == kind]
