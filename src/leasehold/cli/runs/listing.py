"""`kubectl runs list`: the runs, their phase, width and payers."""

from urllib.parse import urlencode

import click

from leasehold.cli.runs.options import FORMS, Session, with_session
from leasehold.cli.runs.output import age, cell, local, part, rows, table
from leasehold.core.names import Wire

PHASES = ("Pending", "Running", "Completed", "Failed")
SORTS = {
    "name": "name",
    "owner": "owner",
    "phase": "phase",
    "submitted": "created",
    "started": "started",
    "ended": "ended",
    "gpus": "width.allocated",
    "gpu-hours": "gpuMs",
}


class PhaseName(click.Choice[str]):
    """Reads a phase in upper or lower case, and returns it as statuses spell it."""

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> str:
        typed = str(value).casefold()
        known = {each.casefold(): each for each in self.choices}
        return super().convert(known.get(typed, value), param, ctx)


@click.command("list")
@click.option(
    "-A", "--all-namespaces", is_flag=True, help="Runs of every namespace that you may see."
)
@click.option("--owner", default="", help="Only runs of this owner; * matches any text.")
@click.option(
    "--phase",
    "phases",
    multiple=True,
    type=PhaseName(PHASES),
    help="Only runs in this phase; may be given several times.",
)
@click.option("-l", "--selector", default="", help="Only runs with these labels, as with kubectl.")
@click.option(
    "--sort",
    type=click.Choice(list(SORTS)),
    default="name",
    show_default=True,
    help="Sort by this; times and numbers in ascending order.",
)
@with_session(forms=(*FORMS, "name"))
def list_runs(
    session: Session,
    all_namespaces: bool,
    owner: str,
    phases: tuple[str, ...],
    selector: str,
    sort: str,
) -> None:
    """List runs with state, GPUs and payers."""
    namespace = "" if all_namespaces else session.namespace
    params = {"namespace": namespace, "owner": owner, "phase": ",".join(phases)}
    answer = session.server.ask("runs", params)
    found = rows(answer)
    if selector:
        wanted = _labelled(session, namespace, selector)
        found = [row for row in found if (cell(row, "namespace"), cell(row, "name")) in wanted]
    if sort != "name":
        found.sort(key=lambda row: _rank(row, SORTS[sort]))
    if not found and session.form in ("table", "wide"):
        where = "" if all_namespaces else f" in namespace {namespace}"
        such = "such " if owner or phases or selector else ""
        click.echo(f"no {such}runs{where}", err=True)
        return
    answer = {**answer, "total": len(found), "items": found}
    if session.form == "name":
        for row in found:
            space = f"{cell(row, 'namespace')}/" if all_namespaces else ""
            click.echo(f"{space}{cell(row, 'name')}")
        return
    session.show(answer, lambda shown, wide: run_table(shown, wide, all_namespaces))


def _labelled(session: Session, namespace: str, selector: str) -> set[tuple[str, str]]:
    """Return namespace and name of the runs that match a label selector. The server selects
    them."""
    path = session.server.run_path(namespace) if namespace else session.server.all_runs_path()
    answer = session.server.send("GET", f"{path}?{urlencode({'labelSelector': selector})}")
    return {
        (cell(each, "metadata.namespace"), cell(each, "metadata.name")) for each in rows(answer)
    }


def _rank(row: Wire, path: str) -> tuple[bool, int, str]:
    """Return the key by which a row is sorted. Rows without a value come last."""
    found = part(row, path)
    number = found if isinstance(found, int) else 0
    return found is None, number, "" if found is None else str(found)


def run_table(answer: Wire, wide: bool, with_namespace: bool) -> list[str]:
    head = ["NAME", "OWNER", "PHASE", "GPUS", "PAYERS", "GPU-HOURS", "AGE"]
    more = ["REASON", "SPARES", "ATTEMPT", "NODES", "SUBMITTED", "STARTED", "ENDED", "MESSAGE"]
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
                *(local(cell(row, key)) for key in ("created", "started", "ended")),
                cell(row, "message"),
            ]
        body.append(line)
    return table([*(["NAMESPACE"] if with_namespace else []), *head, *(more if wide else [])], body)


def payers(row: Wire) -> str:
    found = [f"{cell(each, 'envelope')}={cell(each, 'gpus')}" for each in rows(row, "payers")]
    return ",".join(found) or "-"
