"""`kubectl runs list`: what is there, in what state, how wide, who pays."""

import click

from leasehold.cli.runs.kubeconfig import Wire
from leasehold.cli.runs.options import Session, with_session
from leasehold.cli.runs.output import age, cell, rows, table


@click.command("list")
@click.option("-A", "--all-namespaces", is_flag=True, help="Runs of every namespace you see.")
@click.option("--owner", default="", help="Only runs of this owner; * stands for anything.")
@with_session()
def list_runs(session: Session, all_namespaces: bool, owner: str) -> None:
    """What is there, in what state, how wide, who pays."""
    namespace = "" if all_namespaces else session.namespace
    answer = session.server.ask("runs", {"namespace": namespace, "owner": owner})
    if not rows(answer) and session.form in ("table", "wide"):
        click.echo("no runs" if all_namespaces else f"no runs in namespace {namespace}", err=True)
        return
    session.show(answer, lambda found, wide: run_table(found, wide, all_namespaces))


def run_table(answer: Wire, wide: bool, with_namespace: bool) -> list[str]:
    head = ["NAME", "OWNER", "PHASE", "GPUS", "PAYERS", "GPU-HOURS", "AGE"]
    more = ["REASON", "SPARES", "ATTEMPT", "NODES", "MESSAGE"]
    body = []
    for row in rows(answer):
        line = [
            cell(row, "name"),
            cell(row, "owner"),
            cell(row, "phase"),
            f"{cell(row, 'width.allocated')}/{cell(row, 'width.desired')}",
            payers(row),
            cell(row, "gpuHours"),
            age(answer, cell(row, "created")),
        ]
        if with_namespace:
            line.insert(0, cell(row, "namespace"))
        if wide:
            line += [
                cell(row, "reason"),
                cell(row, "width.spares"),
                cell(row, "attempt"),
                cell(row, "nodes"),
                cell(row, "message"),
            ]
        body.append(line)
    return table([*(["NAMESPACE"] if with_namespace else []), *head, *(more if wide else [])], body)


def payers(row: Wire) -> str:
    found = [f"{cell(each, 'envelope')}={cell(each, 'gpus')}" for each in rows(row, "payers")]
    return ",".join(found) or "-"
