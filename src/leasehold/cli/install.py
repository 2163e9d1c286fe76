"""`leasehold install`: print or apply what leasehold needs on a cluster."""

import asyncio
import base64
import re
from collections.abc import Callable
from pathlib import Path

import click
import msgspec
import yaml

from leasehold.adapters.kubeconfig.read import KubeContext
from leasehold.adapters.kubernetes.client import Client
from leasehold.adapters.kubernetes.install.apply import NotApplied, apply_all, remove_all
from leasehold.adapters.kubernetes.install.documents import NO_CONFIG, Settings, documents
from leasehold.adapters.kubernetes.install.roles import CONTROLLER
from leasehold.adapters.private_file import write_private
from leasehold.cli.config import read_config_file
from leasehold.cli.kube_options import kube_options, kube_sentences, loader
from leasehold.cli.plain_yaml import PlainDumper
from leasehold.core.names import Wire
from leasehold.core.objects.tenure import NAMESPACE
from leasehold.core.objects.wire import part, text_at
from leasehold.ports.store import StoreError
from leasehold.shell.config.config import Config

_TOKENS = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/{CONTROLLER}/token"
_TOKEN_REQUEST = {
    "apiVersion": "authentication.k8s.io/v1",
    "kind": "TokenRequest",
    "spec": {"expirationSeconds": 365 * 24 * 3600},  # the server may grant less
}
_ADDRESS = re.compile(r"[0-9.]+")  # IP addresses, which an ExternalName must not be


@click.command("install")
@kube_options
@click.option("--dry-run", is_flag=True, help="Print the objects as YAML, and change nothing.")
@click.option(
    "--image",
    default="",
    help="The controller's image; without it, no controller is started in the cluster.",
)
@click.option(
    "--replicas",
    type=click.IntRange(1, 9),
    default=3,
    show_default=True,
    help="Number of controller replicas.",
)
@click.option(
    "--config",
    "config_file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The controller's configuration file.  [default: all defaults]",
)
@click.option(
    "--pages",
    is_flag=True,
    help="Serve the dashboard for the proxy that sets web.identityHeader (see --config).",
)
@click.option(
    "--monitoring",
    is_flag=True,
    help="Also install rules and a dashboard for the operators of Prometheus and Grafana.",
)
@click.option(
    "--questions-at",
    default="",
    metavar="HOST:PORT",
    help="Without --image: where the API server reaches the --questions of a controller that runs "
    "outside the cluster. HOST is a DNS name.",
)
@click.option(
    "--controller-kubeconfig",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Also write a kubeconfig (0600) with the rights of the controller, and no others, for one "
    "that runs outside the cluster.",
)
@click.option("--remove", is_flag=True, help="Remove leasehold from the cluster; the ledger stays.")
@click.option(
    "--remove-ledger",
    is_flag=True,
    help="With --remove: also remove the definitions and the whole ledger.",
)
@click.option(
    "--yes", is_flag=True, help="Do not ask for confirmation before the ledger is removed."
)
def command(
    kubeconfig: str,
    context: str,
    dry_run: bool,
    image: str,
    replicas: int,
    config_file: Path | None,
    pages: bool,
    monitoring: bool,
    questions_at: str,
    controller_kubeconfig: Path | None,
    remove: bool,
    remove_ledger: bool,
    yes: bool,
) -> None:
    """Apply definitions, roles, policies and the controller to a cluster.

    The command can be repeated: it updates existing objects, and does not change the ledger. With
    --remove it removes everything except the definitions and their objects, so that the ledger can
    still be read and exported.
    """
    if remove_ledger and not remove:
        raise click.UsageError("--remove-ledger needs --remove")
    if remove and dry_run:
        raise click.UsageError(
            "--dry-run prints what would be applied; it cannot be used with --remove"
        )
    if not image and (monitoring or pages or config_file is not None):
        said = (
            "--config, --pages and --monitoring configure a controller in the cluster; name "
            "its --image"
        )
        raise click.UsageError(said)
    settings = Settings(
        image=image,
        replicas=replicas,
        config=_config(config_file, has_pages=pages),
        pages=pages,
        monitoring=monitoring,
        questions_at=_host_and_port(questions_at) if questions_at else None,
    )
    if image and settings.questions_at is not None:
        raise click.UsageError(
            "--questions-at is for a controller outside the cluster; it cannot be used with --image"
        )
    wanted = documents(settings)
    if remove:
        wanted = documents(Settings(image="any", pages=True, monitoring=True))
        if remove_ledger and not yes:
            said = "This deletes the ledger: every Lease, batch, Run and Budget. Continue?"
            click.confirm(said, abort=True)
        with kube_sentences():
            client = Client(loader(kubeconfig, context))
            asyncio.run(_remove(client, wanted, ledger=remove_ledger))
        return
    if dry_run:
        text = yaml.dump_all(wanted, Dumper=PlainDumper, sort_keys=False, width=100)
        click.echo(text, nl=False)
        return
    with kube_sentences():
        missing = asyncio.run(_install(Client(loader(kubeconfig, context)), wanted))
        if controller_kubeconfig is not None:
            until = asyncio.run(_write_access(loader(kubeconfig, context), controller_kubeconfig))
            click.echo(f"wrote {controller_kubeconfig}; its token is valid until {until}")
    for kind in missing:
        click.echo(
            f"this API server has no {kind}, so Runs do not record who submitted them", err=True
        )
    if not image:
        click.echo("no --image was named, so no controller was started in the cluster")


def _host_and_port(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    is_name = re.fullmatch(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?", host) and not _ADDRESS.fullmatch(host)
    if not is_name or not (port.isascii() and port.isdigit() and 0 < int(port[:6]) < 65_536):
        said = f"{text[:100]!r}: use HOST:PORT with a DNS name that the API server can resolve"
        raise click.BadParameter(said, param_hint="--questions-at")
    return host, int(port)


async def _write_access(load: Callable[[], KubeContext], path: Path) -> str:
    """Write a kubeconfig with a token of the controller's service account. Return when the token
    expires. A controller reads the file again when the API server refuses its token."""
    client = Client(load)
    try:
        context = await client.context()
        made = await client.write("POST", _TOKENS, _TOKEN_REQUEST)
    except StoreError as error:
        notes = " ".join(getattr(error, "__notes__", []))
        raise click.ClickException(
            f"no token for the controller: {error} {notes}".strip()
        ) from None
    finally:
        await client.close()
    status = part(msgspec.json.decode(made, type=dict[str, object]), "status")
    cluster: Wire = {"server": context.server}
    authority = context.ca_data or (Path(context.ca_file).read_bytes() if context.ca_file else b"")
    if authority:
        cluster["certificate-authority-data"] = base64.b64encode(authority).decode()
    if context.server_name:
        cluster["tls-server-name"] = context.server_name
    if not context.verify:
        cluster["insecure-skip-tls-verify"] = True
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": CONTROLLER,
        "clusters": [{"name": CONTROLLER, "cluster": cluster}],
        "users": [{"name": CONTROLLER, "user": {"token": text_at(status, "token")}}],
        "contexts": [{"name": CONTROLLER, "context": {"cluster": CONTROLLER, "user": CONTROLLER}}],
    }
    try:
        write_private(path, yaml.safe_dump(config, sort_keys=False).encode())
    except OSError as error:
        raise click.ClickException(f"{path}: {error.strerror}") from None
    return text_at(status, "expirationTimestamp")


def _config(path: Path | None, *, has_pages: bool) -> str:
    """Return the text of the configuration file; a default text without a file. If the controller
    would not accept the file, end the command with an error."""
    config = Config() if path is None else read_config_file(path)
    if has_pages and not config.front_door.identity_header:
        raise click.UsageError(
            "--pages: the dashboard must know its users; set web.identityHeader and "
            "web.clientCA in a file, and name it by --config"
        )
    return NO_CONFIG if path is None else path.read_text("utf-8")


async def _remove(client: Client, wanted: list[Wire], *, ledger: bool) -> None:
    try:
        await remove_all(
            client, wanted, lambda words: click.echo(f"removed {words}"), ledger=ledger
        )
    except NotApplied as refused:
        raise click.ClickException(str(refused)) from None
    finally:
        await client.close()


async def _install(client: Client, wanted: list[Wire]) -> list[str]:
    try:
        return await apply_all(client, wanted, lambda words: click.echo(f"applied {words}"))
    except NotApplied as refused:
        raise click.ClickException(str(refused)) from None
    except StoreError as error:
        server = (await client.context()).server
        raise click.ClickException(f"unexpected response from {server}: {error}") from None
    finally:
        await client.close()
