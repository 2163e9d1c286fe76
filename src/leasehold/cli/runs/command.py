"""`kubectl runs`, and `leasehold runs`: the group of commands, each loaded when it is named."""

import signal
import sys
from importlib import import_module

import click

# name -> (module, what it does, for the list in --help)
COMMANDS = {
    "budgets": ("budgets", "Used, lent, borrowed, left, committed, until when."),
    "cancel": ("change", "Stop a run."),
    "cover": ("cover", "Every envelope walked, taken or why not."),
    "describe": ("describe", "All that is known of a run, on one page."),
    "explain": ("explain", "Why it waits, who pays, why here, why it was cut."),
    "grow": ("change", "Ask for more GPUs for an elastic run."),
    "leases": ("leases", "Who used what, when, who paid, why it ended."),
    "list": ("listing", "What is there, in what state, how wide, who pays."),
    "logs": ("logs", "What the pods of a run printed."),
    "plan": ("plan", "What would happen if this were submitted now."),
    "pods": ("pods", "The pods of a run."),
    "report": ("report", "GPU-hours by owner, payer, run, node or day."),
    "reservations": ("reservations", "Planned starts: countdown, deficit, odds."),
    "run": ("run", "Run a command on GPUs, without a manifest."),
    "shrink": ("change", "Ask for fewer GPUs for an elastic run."),
    "sponsors": ("sponsors", "Who may sponsor a run."),
    "submit": ("submit", "Submit Runs and Budgets, and see what happens to them."),
    "watch": ("watch", "A live view, until the run ends."),
    "who-pays": ("who_pays", "Who pays for a run, now and to date."),
}


class Lazy(click.Group):
    """Its members are imported one by one; a module has each under its name, `-` as `_`."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"leasehold.cli.runs.{COMMANDS[cmd_name][0]}")
        found = getattr(module, cmd_name.replace("-", "_").replace("list", "list_runs"))
        assert isinstance(found, click.Command), cmd_name
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name][1]) for name in sorted(COMMANDS)])

    def invoke(self, ctx: click.Context) -> object:
        try:
            found: object = super().invoke(ctx)
            sys.stdout.flush()  # here, where a full disk can still be told
        except KeyboardInterrupt:
            raise SystemExit(128 + signal.SIGINT) from None
        except BrokenPipeError:
            raise  # the reader has seen enough; click ends quietly
        except OSError as error:
            raise click.ClickException(f"cannot write the answer: {error.strerror}") from None
        return found


@click.command("runs", cls=Lazy)
def command() -> None:
    """One command for each question about runs, leases and budgets."""
