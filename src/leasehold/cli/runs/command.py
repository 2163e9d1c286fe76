"""`kubectl runs` and `leasehold runs`: the group of commands, each imported when it is named."""

import signal

import click

from leasehold.cli.lazy import LazyGroup

# name -> (module, summary for the list in --help)
COMMANDS = {
    "budgets": (
        "leasehold.cli.runs.budgets:budgets",
        "Used, lent, borrowed, left, committed, until when.",
    ),
    "cancel": ("leasehold.cli.runs.change:cancel", "Stop a run."),
    "cover": ("leasehold.cli.runs.cover:cover", "Every envelope walked, taken or why not."),
    "describe": (
        "leasehold.cli.runs.describe:describe",
        "All that is known of a run, on one page.",
    ),
    "explain": (
        "leasehold.cli.runs.explain:explain",
        "Why it waits, who pays, why here, why it was cut.",
    ),
    "grow": ("leasehold.cli.runs.change:grow", "Ask for more GPUs for an elastic run."),
    "leases": ("leasehold.cli.runs.leases:leases", "Who used what, when, who paid, why it ended."),
    "list": (
        "leasehold.cli.runs.listing:list_runs",
        "What is there, in what state, how wide, who pays.",
    ),
    "logs": ("leasehold.cli.runs.logs:logs", "What the pods of a run printed."),
    "plan": ("leasehold.cli.runs.plan:plan", "What would happen if this were submitted now."),
    "pods": ("leasehold.cli.runs.pods:pods", "The pods of a run."),
    "report": ("leasehold.cli.runs.report:report", "GPU-hours by owner, payer, run, node or day."),
    "reservations": (
        "leasehold.cli.runs.reservations:reservations",
        "Planned starts: countdown, deficit, odds.",
    ),
    "run": ("leasehold.cli.runs.run:run", "Run a command on GPUs, without a manifest."),
    "shrink": ("leasehold.cli.runs.change:shrink", "Ask for fewer GPUs for an elastic run."),
    "sponsors": ("leasehold.cli.runs.sponsors:sponsors", "Who may sponsor a run."),
    "submit": (
        "leasehold.cli.runs.submit:submit",
        "Submit Runs and Budgets, and see what happens to them.",
    ),
    "watch": ("leasehold.cli.runs.watch:watch", "A live view, until the run ends."),
    "who-pays": ("leasehold.cli.runs.who_pays:who_pays", "Who pays for a run, now and to date."),
}


class RunsGroup(LazyGroup):
    """The group; Ctrl-C ends a command without an error message."""

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise SystemExit(128 + signal.SIGINT) from None


@click.command("runs", cls=RunsGroup, members=COMMANDS)
def command() -> None:
    """One command for each question about runs, leases and budgets."""
