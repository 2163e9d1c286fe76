"""`leasehold crds`: print our kinds as CustomResourceDefinitions, for `kubectl apply -f -`."""

import click
import yaml

from leasehold.adapters.api.crds import definitions
from leasehold.cli.plain_yaml import PlainDumper


@click.command("crds")
def command() -> None:
    """Print the CustomResourceDefinitions; for example: leasehold crds | kubectl apply -f -"""
    click.echo(
        yaml.dump_all(definitions(), Dumper=PlainDumper, sort_keys=False, width=100), nl=False
    )
