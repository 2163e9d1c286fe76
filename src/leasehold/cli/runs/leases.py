"""`kubectl runs leases`: which run used which GPUs and when, which envelope paid, and why it
ended."""

import click

from leasehold.cli.runs.options import Session, with_session
from leasehold.cli.runs.output import age, cell, local, rows, table
from leasehold.core.names import Wire


@click.command("leases")
@click.argument("run", required=False)
@click.option("--node", default="", help="Only leases on this node.")
@click.option("--owner", default="", help="Only leases of runs of this owner; * matches any text.")
@click.option(
    "--payer", default="", help="Only leases paid by this envelope, or by envelopes of this owner."
)
@click.option(
    "--since",
    default="",
    help="Only leases that were open at some time since then: a duration (12h), a day or a time.",
)
@click.option("--at", "instant", default="", help="Only leases that were open at this time.")
@click.option("--closed", is_flag=True, help="Only leases that have ended.")
@click.option("--limit", default="", help="Show at most this many leases, the newest.")
@with_session(
    everywhere=True,
    namespace_help="Only leases of runs in this namespace; also the namespace of RUN.  "
    "[default: all namespaces]",
)
def leases(
    session: Session,
    run: str | None,
    node: str,
    owner: str,
    payer: str,
    since: str,
    instant: str,
    closed: bool,
    limit: str,
) -> None:
    """Show who used which GPUs and when, who paid, and why it ended, in all namespaces.

    Without RUN, --since, --at or --closed, shows only leases that are open now.
    """
    params: dict[str, str | None] = {
        "namespace": session.named_namespace,
        "node": node,
        "owner": owner,
        "payer": payer,
        "since": since,
        "at": instant,
        "closed": "true" if closed else "",
        "limit": limit,
    }
    if run:
        params |= session.of_run(run)
    answer = session.server.ask("leases", params)
    if not rows(answer) and session.form in ("table", "wide"):
        click.echo("no such leases", err=True)
        return
    session.show(answer, lease_table)


def lease_table(answer: Wire, wide: bool) -> list[str]:
    head = ["RUN", "NODE", "GPUS", "ROLE", "PAYER", "START", "END", "GPU-HOURS", "ENDED"]
    more = ["LEASE", "OWNER", "SLOTS", "GROUP", "POD", "OPENED", "CLOSURE"]
    body = []
    for row in rows(answer):
        ended = cell(row, "closed")
        if part_ending := row.get("ending"):
            ended = f"ending: {cell(part_ending, 'reason').partition('(')[0]}"
        line = [
            cell(row, "run"),
            cell(row, "node"),
            cell(row, "gpus"),
            cell(row, "role"),
            cell(row, "payer"),
            local(cell(row, "start")),
            _end(answer, row),
            cell(row, "gpuHours"),
            ended,
        ]
        if wide:
            line += [cell(row, key) for key in ("lease", "owner", "slots")]
            line += [f"{cell(row, 'group')}.{cell(row, 'index')}", cell(row, "pod")]
            line += [cell(row, "opened"), cell(row, "closure")]
        body.append(line)
    return table([*head, *(more if wide else [])], body)


def _end(answer: Wire, row: Wire) -> str:
    end = cell(row, "end")
    return f"open {age(answer, cell(row, 'start'))}" if end == "-" else local(end)
