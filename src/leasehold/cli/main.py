"""The `leasehold` command: finds the subcommand that was asked for and loads only that one.

The console script and `python -m leasehold` call `main`. Each subcommand is a file of its own under
`cli` and is imported when it is named, so that `--help` and completion stay quick.
"""

import sys
from importlib import import_module

import click

from leasehold import __version__

# name -> (module, what it does, for the list in --help)
COMMANDS = {
    "audit": ("leasehold.cli.audit", "Prove that leases, pods and balances agree."),
    "backup": ("leasehold.cli.backup", "Copy a data folder, also while it is used."),
    "config": ("leasehold.cli.config", "Look at the configuration."),
    "controller": ("leasehold.cli.controller", "Run the controllers against a cluster."),
    "crds": ("leasehold.cli.crds", "Print the CustomResourceDefinitions."),
    "drain": ("leasehold.cli.nodes:drain", "Empty a node without loss."),
    "fence": ("leasehold.cli.nodes:fence", "Declare a node dead."),
    "install": ("leasehold.cli.install", "Put what leasehold needs onto a cluster."),
    "ledger": ("leasehold.cli.ledger", "Verify, export, compact and replay the ledger."),
    "lint": ("leasehold.cli.lint", "Validate manifests without a server."),
    "lottery": ("leasehold.cli.lottery", "Re-run the draws of a lottery and compare."),
    "restore": ("leasehold.cli.restore", "Make a data folder from a backup, or a damaged one."),
    "runs": ("leasehold.cli.runs.command", "The same as kubectl runs."),
    "sim": ("leasehold.cli.sim", "Run the control plane on virtual time."),
    "token": ("leasehold.cli.token", "Who may use an embedded control plane."),
    "ui": ("leasehold.cli.ui", "Print a link to the dashboard."),
    "up": ("leasehold.cli.up", "Start a control plane on this machine."),
}


class Lazy(click.Group):
    """A group whose members are imported one by one; a module has its command as
    `command`, or under the name after the colon."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name][0].partition(":")
        found = getattr(import_module(module), name or "command")
        assert isinstance(found, click.Command), f"{module} has no {name or 'command'}"
        return found

    def invoke(self, ctx: click.Context) -> object:
        try:
            found: object = super().invoke(ctx)
            sys.stdout.flush()  # here, where a full disk can still be told
        except BrokenPipeError:
            raise  # the reader has seen enough; click ends quietly
        except OSError as error:
            raise click.ClickException(f"cannot write the answer: {error.strerror}") from None
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name][1]) for name in sorted(COMMANDS)])


@click.command(cls=Lazy)
@click.version_option(__version__, prog_name="leasehold")
def main() -> None:
    """leasehold gives every GPU-second on a shared fleet a payer and a reason."""
    if not __debug__:
        raise click.ClickException("assertions guard the ledger: do not run it with python -O")
