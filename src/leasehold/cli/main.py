"""The `leasehold` command: finds the requested subcommand and imports only that one.

Called by the console script and by `python -m leasehold`. Each subcommand has its own module in
`cli`. It is imported when it is named, so that `--help` and completion stay fast.
"""

import click

from leasehold import __version__
from leasehold.cli.lazy import LazyGroup

# name -> (module, summary for the list in --help)
COMMANDS = {
    "audit": ("leasehold.cli.audit", "Check that leases, pods and balances agree."),
    "backup": ("leasehold.cli.backup", "Copy a data folder, even while it is used."),
    "config": ("leasehold.cli.config", "Show the configuration."),
    "controller": ("leasehold.cli.controller", "Run the controllers against a cluster."),
    "crds": ("leasehold.cli.crds", "Print the CustomResourceDefinitions."),
    "drain": ("leasehold.cli.nodes:drain", "Empty a node without losing work."),
    "fence": ("leasehold.cli.nodes:fence", "Declare a node dead."),
    "install": ("leasehold.cli.install", "Install leasehold on a cluster."),
    "ledger": ("leasehold.cli.ledger", "Verify, export, compact and replay the ledger."),
    "lint": ("leasehold.cli.lint", "Validate manifests without a server."),
    "lottery": ("leasehold.cli.lottery", "Re-run the draws of a lottery and compare."),
    "restore": ("leasehold.cli.restore", "Make a data folder from a backup."),
    "runs": ("leasehold.cli.runs.command", "The same as kubectl runs."),
    "sim": ("leasehold.cli.sim", "Run the control plane on virtual time."),
    "token": ("leasehold.cli.token", "Manage the users of an embedded control plane."),
    "ui": ("leasehold.cli.ui", "Print a link to the dashboard."),
    "up": ("leasehold.cli.up", "Start a control plane on this machine."),
}


@click.command(cls=LazyGroup, members=COMMANDS)
@click.version_option(__version__, prog_name="leasehold")
def main() -> None:
    """leasehold gives every GPU-second on a shared fleet a payer and a reason."""
    if not __debug__:
        raise click.ClickException(
            "assertions guard the ledger: do not run leasehold with python -O"
        )
