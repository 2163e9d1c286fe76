"""`leasehold ledger …`: verify, export, compact or restore the ledger, or replay it to an instant.

Each subcommand has its own module. Most work either on exported files or on a data folder with its
archive. Files can be verified without trust in the program that wrote them.
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
