"""`leasehold ledger …`: verify, export, compact or restore the ledger, or replay it to an instant.

Each subcommand has its own module. They work on exported files, so that nobody has to trust the
program that wrote them, or on a data folder with its archive.
"""

import click

from leasehold.cli.ledger_compact import compact
from leasehold.cli.ledger_export import export
from leasehold.cli.ledger_replay import replay
from leasehold.cli.ledger_restore import restore
from leasehold.cli.ledger_verify import verify


@click.group("ledger")
def command() -> None:
    """Verify, replay, export, compact and mend the ledger."""


for each in (verify, replay, export, compact, restore):
    command.add_command(each)
