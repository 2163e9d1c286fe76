"""`leasehold ledger export`: the whole ledger, archived and live, as JSON lines or a table.

The JSON lines are the chain itself, which anybody can verify. The table has one row per lease, for
spreadsheets and bills. The command takes no lock, so it works while a server runs.
"""

import csv
import io
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import click
import msgspec

from leasehold.adapters.private_file import write_private
from leasehold.cli.cluster_copy import ledger_options
from leasehold.cli.ledger_source import archive_of, instant_option, snapshot_of
from leasehold.core.facts import Lease, ledger_order
from leasehold.core.ledger.verify import fold_lines
from leasehold.core.names import Wire
from leasehold.core.units import FOREVER, Instant, format_instant
from leasehold.shell.archive.snapshot import whole_ledger
from leasehold.shell.config.folder import DataFolder

COLUMNS = (
    "lease",
    "run_namespace",
    "run",
    "run_uid",
    "attempt",
    "group",
    "index",
    "node",
    "slots",
    "gpus",
    "role",
    "owner",
    "payer_namespace",
    "payer_budget",
    "payer_envelope",
    "payer_owner",
    "relation",
    "start",
    "began",
    "saved",
    "end",
    "opened",
    "closure",
    "cause",
    "opened_in",
    "closed_in",
    "gpu_seconds",
)
_MS = 1000


@click.command("export")
@ledger_options
@click.option(
    "--format", "form", type=click.Choice(("jsonl", "csv")), default="jsonl", show_default=True
)
@click.option("--from", "since", help="Batches (csv: use) from this time on.")
@click.option("--to", "until", help="Batches (csv: use) before this time.  [default: now]")
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write to this file or folder (mode 0600, complete or not at all) instead of to the "
    "terminal.",
)
def export(
    data: DataFolder, form: str, since: str | None, until: str | None, out: Path | None
) -> None:
    """Write the ledger, archived and live in one: the chain, or a row per lease.

    gpu_seconds counts exactly the time between --from and --to; for an open lease, the time until
    --to or now.
    """
    low = instant_option(since, "--from") or 0
    high = instant_option(until, "--to")
    with snapshot_of(data) as snapshot:
        lines = whole_ledger(snapshot, archive_of(data))
        if form == "csv":
            now = time.time_ns() // 1_000_000
            pieces: Iterable[bytes] = table(lines, low, now if high is None else high)
        else:
            pieces = chained(lines, low, FOREVER if high is None else high)
        if out is None:
            for piece in pieces:
                click.echo(piece, nl=False)
        else:
            _write(out, b"".join(pieces))


def chained(lines: Iterable[Wire], since: Instant, until: Instant) -> Iterator[bytes]:
    """Yield the exported lines of batches whose time is in [since, until), in the same bytes as in
    the archive."""
    for line in lines:
        batch = line.get("batch")
        instant = batch.get("instant") if isinstance(batch, dict) else None
        if isinstance(instant, int) and since <= instant < until:
            yield msgspec.json.encode(line, order="sorted") + b"\n"


def table(lines: Iterable[Wire], since: Instant, until: Instant) -> Iterator[bytes]:
    """Yield a CSV header, then a row for each lease that overlaps [since, until)."""
    fold, wrong = fold_lines(lines)
    if wrong is not None:
        raise click.ClickException(f"{wrong}; see `leasehold ledger verify`")
    yield _row(COLUMNS)
    for lease in sorted(fold.leases.values(), key=ledger_order):
        end = until if lease.end is None else lease.end
        if lease.start < until and (end > since or end == lease.start >= since):
            span = max(0, min(end, until) - max(lease.start, since))
            yield _row(_cells(lease, lease.gpus * span))


def _cells(lease: Lease, gpu_ms: int) -> tuple[str | int, ...]:
    namespace, budget, envelope = lease.payer.split("/", 2)
    return (
        lease.name,
        lease.namespace,
        lease.run,
        lease.uid,
        lease.attempt,
        lease.group,
        lease.index,
        lease.node,
        " ".join(map(str, lease.slots)),
        lease.gpus,
        lease.role,
        lease.owner,
        namespace,
        budget,
        envelope,
        lease.payer_owner,
        lease.relation,
        format_instant(lease.start),
        _instant(None if lease.closed is None else lease.closed.began),
        _instant(None if lease.closed is None else lease.closed.saved),
        _instant(lease.end),
        lease.reason,
        "" if lease.closed is None else str(lease.closed.why),
        lease.cause or "",
        lease.batch,
        "" if lease.closed is None else lease.closed.batch,
        f"{gpu_ms // _MS}.{gpu_ms % _MS:03d}",
    )


def _instant(at: Instant | None) -> str:
    return "" if at is None else format_instant(at)


def _row(cells: tuple[str | int, ...]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue().encode()


def _write(path: Path, content: bytes) -> None:
    try:
        write_private(path.absolute(), content)
    except OSError as error:
        said = f"{path}: {error.strerror}; name a file that can be written (--out)"
        raise click.ClickException(said) from None
