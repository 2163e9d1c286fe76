"""`leasehold crds`: our kinds as CustomResourceDefinitions, as YAML for `kubectl apply -f -`."""

import click
import yaml

from leasehold.adapters.api.crds import definitions


@click.command("crds")
def command() -> None:
    """Print the CustomResourceDefinitions; for example: leasehold crds | kubectl apply -f -"""
    click.echo(yaml.dump_all(definitions(), Dumper=_Plain, sort_keys=False, width=100), nl=False)


class _Plain(yaml.SafeDumper):
    """Without anchors: a part that several definitions share is written out in each."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - no data is an exception
        return True
