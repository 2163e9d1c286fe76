"""`kubectl runs report gpu-hours`: the GPU-hours used, for chargeback, as a table, CSV or
Parquet."""

from pathlib import Path

import click

from leasehold.app.failure import Failure
from leasehold.app.parquet import load, write_parquet
from leasehold.cli.runs.options import FORMS, Session, with_session
from leasehold.cli.runs.output import cell, local, rows, table
from leasehold.core.names import Wire

USES = ("work", "spare", "starting", "failed", "cut")
GROUPINGS = ("owner", "payer", "run", "node", "day", "week", "month")


@click.group("report")
def report() -> None:
    """Reports over live and archived leases."""


@report.command("gpu-hours")
@click.option(
    "--by",
    type=click.Choice(GROUPINGS),
    default="owner",
    show_default=True,
    help="Group the rows by this.",
)
@click.option("--from", "start", default="", help="Start: a day, a time or a duration ago (30d).")
@click.option("--to", "end", default="", help="End, in the same form.  [default: now]")
@click.option(
    "--owner",
    default="",
    help="Only GPU-hours used by this owner; with --by payer, paid by this owner.",
)
@click.option(
    "--tz",
    default="",
    metavar="ZONE",
    help="Time zone of days, weeks and months, such as Europe/Berlin.  [default: UTC]",
)
@click.option("--file", "file", default="", help="Write to this file (needed for parquet).")
@with_session(
    forms=(*FORMS, "csv", "parquet"),
    everywhere=True,
    namespace_help="Only GPU-hours of runs in this namespace.  [default: all namespaces]",
)
def gpu_hours(
    session: Session, by: str, start: str, end: str, owner: str, tz: str, file: str
) -> None:
    """Show exactly what was used from --from to --to, by owner, payer, run, node, day, week or
    month.

    By owner there are two sums: what the owner's runs used, no matter who paid, and what the
    owner's envelopes paid. With -o wide, also shows the kinds of use: work, idle spares, starting
    pods, and work lost to failures or preemptions.
    """
    if tz and by not in ("day", "week", "month"):
        raise Failure(
            "--tz is the time zone of days, weeks and months; use it with --by day, week or month"
        )
    if session.form == "parquet":
        duckdb = load()
        if not file:
            raise Failure("Parquet is a binary format: name a file with --file")
    elif file and session.form != "csv":
        raise Failure("--file is for -o csv and -o parquet; redirect the output instead")
    params = {
        "by": by,
        "from": start,
        "to": end,
        "owner": owner,
        "namespace": session.named_namespace,
        "tz": tz,
    }
    answer = session.server.ask("report", params)
    if session.form not in ("csv", "parquet"):
        session.show(answer, _rendered)
        return
    from leasehold.cli.runs.records import as_record  # not needed for tables
    from leasehold.control.questions.answers.books import ReportAnswer
    from leasehold.web.sheet import sheet

    found = sheet(as_record(ReportAnswer, answer))
    if session.form == "csv":
        _write(found.csv(), file)
    else:
        write_parquet(duckdb, found.columns, found.csv(), file)


def _rendered(answer: Wire, wide: bool) -> list[str]:
    by = cell(answer, "by")
    keys = [by, "gpuHours", *(["paidGpuHours"] if by == "owner" else [])]
    head = [
        by.upper(),
        "USED" if by == "owner" else "GPU-HOURS",
        *(["PAID"] if by == "owner" else []),
    ]
    if wide:
        keys += [*(f"uses.{use}.gpuHours" for use in USES), "leases", "gpuMs"]
        head += [*(use.upper() for use in USES), "LEASES", "GPU-MS"]
    body = [[cell(each, key) for key in keys] for each in rows(answer)]
    total = answer.get("total")
    body.append(["total", *(cell(total, key) for key in keys[1:])])
    start = cell(answer, "from")
    since = "the beginning" if start == "-" else local(start)
    return [f"GPU-hours from {since} to {local(cell(answer, 'to'))}", *table(head, body)]


def _write(text: str, file: str) -> None:
    if not file:
        click.echo(text, nl=False)
        return
    try:
        Path(file).write_text(text, encoding="utf-8")
    except OSError as error:
        raise Failure(f"cannot write {file}: {error.strerror}") from None
