"""`kubectl runs reservations`: planned starts, with the time until then, missing GPUs, confidence
and odds.
"""

import click

from leasehold.cli.runs.options import Session, with_session
from leasehold.cli.runs.output import age, cell, local, rows, table
from leasehold.core.names import Wire


@click.command("reservations")
@click.option(
    "-A", "--all-namespaces", is_flag=True, help="Reservations of every namespace that you may see."
)
@click.option(
    "--past", is_flag=True, help="Also show Reservations that were released or cancelled."
)
@with_session()
def reservations(session: Session, all_namespaces: bool, past: bool) -> None:
    """Show planned starts: when, how certain, and which runs may be preempted with which odds."""
    namespace = "" if all_namespaces else session.namespace
    params: dict[str, str | None] = {"namespace": namespace, "past": "true" if past else ""}
    answer = session.server.ask("reservations", params)
    if not rows(answer) and session.form in ("table", "wide"):
        place = "" if all_namespaces else f" in namespace {namespace}"
        click.echo(f"no reservations{place}", err=True)
        return
    session.show(answer, _rendered)


def _rendered(answer: Wire, wide: bool) -> list[str]:
    head = ["RUN", "STATE", "STARTS", "IN", "CONFIDENCE", "DEFICIT", "ODDS"]
    more = ["NAME", "REASON", "PAYERS", "DOMAINS", "PASSED-BY", "MESSAGE"]
    body = []
    for row in rows(answer):
        waits = row.get("startsInMs") is not None
        odds = [f"{cell(each, 'run')}={cell(each, 'percent')}%" for each in rows(row, "odds")]
        line = [
            cell(row, "run"),
            cell(row, "state"),
            local(cell(row, "starts")),
            age(answer, cell(row, "starts")) if waits else "-",
            cell(row, "confidence"),
            cell(row, "deficit"),
            ",".join(odds) or "-",
        ]
        if wide:
            passed = [cell(each, "run") for each in rows(row, "passedBy")]
            line += [cell(row, key) for key in ("name", "reason", "payers", "domains")]
            line += [",".join(passed) or "-", cell(row, "message")]
        body.append(line)
    return table([*head, *(more if wide else [])], body)
