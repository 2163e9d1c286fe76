"""`leasehold install`: what leasehold needs on a cluster, printed or applied."""

import asyncio
from pathlib import Path

import click
import yaml

from leasehold.adapters.kubernetes.client import Client
from leasehold.adapters.kubernetes.install.apply import NotApplied, apply_all, remove_all
from leasehold.adapters.kubernetes.install.documents import NO_CONFIG, Settings, documents
from leasehold.cli.config import read_config_file
from leasehold.cli.kube_options import kube_options, kube_sentences, loader
from leasehold.cli.plain_yaml import PlainDumper
from leasehold.core.names import Wire
from leasehold.ports.store import StoreError
from leasehold.shell.config import Config


@click.command("install")
@kube_options
@click.option("--dry-run", is_flag=True, help="Print it as YAML, and change nothing.")
@click.option("--image", default="", help="The controller's image; without it none is started.")
@click.option(
    "--replicas", type=click.IntRange(1, 9), default=3, show_default=True, help="Of the controller."
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
    help="Serve the dashboard, to the proxy that web.identityHeader of --config is of.",
)
@click.option(
    "--monitoring",
    is_flag=True,
    help="Also what the operators of Prometheus and Grafana read: rules and a dashboard.",
)
@click.option("--remove", is_flag=True, help="Take it off the cluster again; the ledger stays.")
@click.option("--remove-ledger", is_flag=True, help="With --remove: the definitions and all of it.")
@click.option("--yes", is_flag=True, help="Do not ask before the ledger is removed.")
def command(
    kubeconfig: str,
    context: str,
    dry_run: bool,
    image: str,
    replicas: int,
    config_file: Path | None,
    pages: bool,
    monitoring: bool,
    remove: bool,
    remove_ledger: bool,
    yes: bool,
) -> None:
    """Apply definitions, roles, policies and the controller to a cluster.

    It can be repeated: what is there already is brought up to date, and the ledger is not touched.
    With --remove all of it goes but the definitions and what was written under them: who used what
    can still be read and exported.
    """
    if remove_ledger and not remove:
        raise click.UsageError("--remove-ledger goes with --remove")
    if remove and dry_run:
        raise click.UsageError("--dry-run prints what is applied; it does not go with --remove")
    if not image and (monitoring or pages or config_file is not None):
        said = "--config, --pages and --monitoring are of a controller; name its --image"
        raise click.UsageError(said)
    settings = Settings(
        image=image,
        replicas=replicas,
        config=_config(config_file, has_pages=pages),
        pages=pages,
        monitoring=monitoring,
    )
    wanted = documents(settings)
    if remove:
        wanted = documents(Settings(image="any", pages=True, monitoring=True))
        if remove_ledger and not yes:
            said = "This deletes the ledger: every Lease, batch, Run and Budget. Go on?"
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
    for kind in missing:
        click.echo(f"this server has no {kind}: Runs do not say who submitted them", err=True)
    if not image:
        click.echo("no --image was named, so no controller was started in the cluster")


def _config(path: Path | None, *, has_pages: bool) -> str:
    """Its text, if it is one that the controller will take."""
    config = Config() if path is None else read_config_file(path)
    if has_pages and not config.front_door.identity_header:
        raise click.UsageError(
            "--pages: somebody must say who looks; write web.identityHeader and web.clientCA into "
            "a file, and name it by --config"
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
        raise click.ClickException(f"{server} does not answer as it should: {error}") from None
    finally:
        await client.close()
