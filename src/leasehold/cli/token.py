"""`leasehold token …`: manage which users may use an embedded control plane, and what they may do.

The commands edit the token file in a data folder, so every user that can read that folder is an
administrator. A running server notices a change at once. A token is printed only when it is
created.
"""

import time
from pathlib import Path

import click

from leasehold.adapters.http.tokens import BadTokenFile, Tokens
from leasehold.adapters.kubeconfig.write import read_back, write_kubeconfig
from leasehold.cli.data_folder import server_data_option
from leasehold.cli.runs.output import table
from leasehold.core.objects.access import Caller, CallerRole
from leasehold.core.objects.owners import GLOB_REMEDY, is_owner_glob
from leasehold.core.units import format_instant, parse_span
from leasehold.shell.config.folder import DataFolder

ROLES = [str(role) for role in CallerRole]


@click.group("token")
def command() -> None:
    """Create, list and revoke the tokens of an embedded control plane."""


@command.command("create")
@server_data_option
@click.option("--user", required=True, help="Name of the user, as shown in audits and by `whoami`.")
@click.option("--role", type=click.Choice(ROLES), default="user", show_default=True)
@click.option(
    "--namespace",
    "-n",
    "namespaces",
    multiple=True,
    help="Namespaces that the user may see, as patterns; may be repeated.",
)
@click.option("--spend", multiple=True, help="Owners that the user may name in Runs, as patterns.")
@click.option("--fund", multiple=True, help="Owners whose Budgets the user may create and raise.")
@click.option("--lend", multiple=True, help="Owners whose lending the user may change.")
@click.option(
    "--expires", help="When the token expires: a duration such as 12h or 90d.  [default: never]"
)
@click.option(
    "--kubeconfig",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write a kubeconfig with the token to this file (mode 0600) instead of printing the "
    "token.",
)
def create(
    data: DataFolder,
    user: str,
    role: str,
    namespaces: tuple[str, ...],
    *,
    spend: tuple[str, ...],
    fund: tuple[str, ...],
    lend: tuple[str, ...],
    expires: str | None,
    kubeconfig: Path | None,
) -> None:
    """Create a token; for example --user ann --namespace vision --spend 'org:ai:*'."""
    for option, globs in (("--spend", spend), ("--fund", fund), ("--lend", lend)):
        for glob in globs:
            if not is_owner_glob(glob):
                raise click.BadParameter(f"{glob!r}: {GLOB_REMEDY}", param_hint=option)
    if role in ("user", "viewer") and not namespaces:
        raise click.UsageError(
            f"a {role} can see nothing without --namespace; name at least one namespace"
        )
    until = None
    if expires is not None:
        span = parse_span(expires)
        if not span:
            raise click.BadParameter("use a duration such as 12h or 90d", param_hint="--expires")
        until = time.time_ns() // 1_000_000 + span
    caller = Caller(
        user=user,
        role=CallerRole(role),
        namespaces=namespaces,
        spend=spend,
        fund=fund,
        lend=lend,
    )
    cluster = None
    if kubeconfig is not None:
        cluster = read_back(data.kubeconfig)
        if cluster is None:
            raise click.ClickException(
                f"{data.kubeconfig} does not exist yet: start `leasehold up` once, then try again"
            )
    token = _tokens(data).create(caller, expires=until)
    if kubeconfig is None or cluster is None:
        click.echo(token)
        return
    first = namespaces[0] if namespaces and "*" not in namespaces[0] else "default"
    write_kubeconfig(
        kubeconfig, server=cluster.server, ca_pem=cluster.ca_pem, token=token, namespace=first
    )
    click.echo(f"export KUBECONFIG={kubeconfig}")


@command.command("list")
@server_data_option
def list_tokens(data: DataFolder) -> None:
    """List tokens, and what each token may do."""
    head = ("USER", "ROLE", "NAMESPACES", "SPEND", "FUND", "LEND", "EXPIRES")
    rows = []
    for record in _tokens(data).list():
        caller = record.caller
        globs = (caller.namespaces, caller.spend, caller.fund, caller.lend)
        rows.append(
            (
                caller.user,
                str(caller.role),
                *(",".join(each) or "-" for each in globs),
                "never" if record.expires is None else format_instant(record.expires),
            )
        )
    for line in table(head, rows):
        click.echo(line)


@command.command("revoke")
@server_data_option
@click.option("--user", required=True)
def revoke(data: DataFolder, user: str) -> None:
    """Revoke every token of a user, immediately."""
    revoked = _tokens(data).revoke(user)
    if not revoked:
        raise click.ClickException(f"{user} has no token; see leasehold token list")
    click.echo(f"{revoked} token{'s' if revoked > 1 else ''} of {user} revoked")


def _tokens(data: DataFolder) -> Tokens:
    if not data.root.is_dir():
        remedy = "start `leasehold up` once, or name the folder with --data"
        raise click.ClickException(f"{data.root}: no such folder; {remedy}")
    try:
        return Tokens(data.tokens)
    except (BadTokenFile, OSError) as error:
        raise click.ClickException(str(error)) from None
