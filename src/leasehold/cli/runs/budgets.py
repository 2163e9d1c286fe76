"""`kubectl runs budgets usage|balance|tree`: what each Budget has used, lent, borrowed, left and
committed, and how long that lasts.
"""

import click

from leasehold.cli.runs.options import Session, with_session
from leasehold.cli.runs.output import cell, local, rows, table
from leasehold.core.names import Wire

_owner = click.option("--owner", default="", help="Only Budgets of this owner; * matches any text.")
_HERE = "Only Budgets in this namespace.  [default: all namespaces]"


@click.group("budgets")
def budgets() -> None:
    """Show what is used, lent, borrowed, left and committed."""


@budgets.command("usage")
@_owner
@with_session(everywhere=True, namespace_help=_HERE)
def usage(session: Session, owner: str) -> None:
    """GPUs in use, lent and free by envelope; borrowed by owner."""
    session.show(_asked(session, "usage", owner), _usage)


@budgets.command("balance")
@_owner
@with_session(everywhere=True, namespace_help=_HERE)
def balance(session: Session, owner: str) -> None:
    """GPU-hours used, committed and left by envelope, and how long that lasts."""
    session.show(_asked(session, "balance", owner), _balance)


@budgets.command("tree")
@_owner
@with_session(everywhere=True, namespace_help=_HERE)
def tree(session: Session, owner: str) -> None:
    """The tree of owners, each with everything below it."""
    session.show(_asked(session, "tree", owner), _tree)


def _asked(session: Session, form: str, owner: str) -> Wire:
    params = {"form": form, "owner": owner, "namespace": session.named_namespace}
    return session.server.ask("budgets", params)


def _usage(answer: Wire, wide: bool) -> list[str]:
    keys = ["envelope", "owner", "flavor", "used", "concurrency", "free", "lent", "state", "until"]
    head = ["ENVELOPE", "OWNER", "FLAVOR", "USED", "OF", "FREE", "LENT", "STATE", "UNTIL"]
    if wide:
        keys[7:7] = ["shared", "spare", "claimed", "overdrawn"]
        head[7:7] = ["SHARED", "SPARE", "CLAIMED", "OVERDRAWN"]
    body = [
        [local(cell(each, key)) if key == "until" else cell(each, key) for key in keys]
        for each in rows(answer)
    ]
    lines = table(head, body)
    keys = ["owner", "gpus", "owned", "shared", "borrowed", "lent"]
    owners = [[cell(each, key) for key in keys] for each in rows(answer, "owners")]
    head = ["OWNER", "HOLDS", "OWNED", "SHARED", "BORROWED", "LENT"]
    return [*lines, "", *table(head, owners)]


def _balance(answer: Wire, wide: bool) -> list[str]:
    head = ["ENVELOPE", "OWNER", "LIMIT", "USED", "COMMITTED", "LEFT", "PAYS-UNTIL"]
    more = ["LENT", "LENDING-LIMIT", "OPENS", "UNTIL"]
    body = []
    for row in rows(answer):
        line = [cell(row, "envelope"), cell(row, "owner")]
        line += [cell(row, f"{key}.gpuHours") for key in ("limit", "used", "committed", "left")]
        line.append(local(cell(row, "paysUntil")))
        if wide:
            line += [cell(row, f"{key}.gpuHours") for key in ("lent", "lendingLimit")]
            line += [local(cell(row, key)) for key in ("opens", "until")]
        body.append(line)
    return table([*head, *(more if wide else [])], body)


def _tree(answer: Wire, wide: bool) -> list[str]:
    head = ["OWNER", "ENVELOPES", "USED", "OF", "LENT", "GPU-HOURS"]
    more = ["OWN-USED", "OWN-OF", "OWN-GPU-HOURS", "PARENTS"]
    body = []
    for row in rows(answer):
        depth = row.get("depth")
        indent = "  " * depth if isinstance(depth, int) else ""
        line = [indent + cell(row, "owner"), cell(row, "envelopes")]
        line += [cell(row, f"below.{key}") for key in ("used", "concurrency", "lent", "gpuHours")]
        if wide:
            line += [cell(row, f"own.{key}") for key in ("used", "concurrency", "gpuHours")]
            line.append(cell(row, "parents"))
        body.append(line)
    return table([*head, *(more if wide else [])], body)
