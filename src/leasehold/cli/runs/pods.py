"""`kubectl runs pods RUN`: the pods of a run, their nodes and phases."""

import click

from leasehold.cli.runs.options import Session, with_session
from leasehold.cli.runs.output import age, cell, rows, table
from leasehold.core.names import Wire


@click.command("pods")
@click.argument("run")
@with_session()
def pods(session: Session, run: str) -> None:
    """The pods of a run."""
    answer = session.server.ask("pods", session.of_run(run))
    if not rows(answer) and session.form in ("table", "wide"):
        click.echo(f"{cell(answer, 'run')} has no pods", err=True)
        return
    session.show(answer, pod_table)


def pod_table(answer: Wire, wide: bool) -> list[str]:
    usual = ("name", "phase", "node", "slots", "group", "index")
    head = ["NAME", "PHASE", "NODE", "SLOTS", "GROUP", "POD", "AGE"]
    more = ["ATTEMPT", "EXIT", "REASON", "LEASES", "MESSAGE"]
    body = []
    for row in rows(answer):
        line = [cell(row, key) for key in usual] + [age(answer, cell(row, "started"))]
        if wide:
            keys = ("attempt", "exitCode", "reason", "leases", "message")
            line += [cell(row, key) for key in keys]
        body.append(line)
    return table([*head, *(more if wide else [])], body)
