"""`leasehold install`: what leasehold needs on a cluster, printed or applied."""

import asyncio

import click
import yaml

from leasehold.adapters.kubernetes.client import Client
from leasehold.adapters.kubernetes.install.apply import NotApplied, apply_all
from leasehold.adapters.kubernetes.install.documents import Settings, documents
from leasehold.cli.kube_options import kube_options, kube_sentences, loader
from leasehold.cli.plain_yaml import PlainDumper
from leasehold.core.names import Wire
from leasehold.ports.store import StoreError


@click.command("install")
@kube_options
@click.option("--dry-run", is_flag=True, help="Print it as YAML, and change nothing.")
@click.option("--image", default="", help="The controller's image; without it none is started.")
@click.option(
    "--replicas", type=click.IntRange(1, 9), default=3, show_default=True, help="Of the controller."
)
def command(kubeconfig: str, context: str, dry_run: bool, image: str, replicas: int) -> None:
    """Apply definitions, roles, policies and the controller to a cluster.

    It can be repeated: what is there already is brought up to date, and the ledger is not touched.
    """
    wanted = documents(Settings(image=image, replicas=replicas))
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
