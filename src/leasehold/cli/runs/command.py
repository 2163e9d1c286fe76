"""`kubectl runs` and `leasehold runs`: a group of commands, each of which is imported when it is
named.
"""

import signal

import click

from leasehold.cli.lazy import LazyGroup

# name -> (module, summary for the list in --help)
COMMANDS = {
    "budgets": (
        "leasehold.cli.runs.budgets:budgets",
        "What is used, lent, borrowed, left and committed.",
    ),
    "cancel": ("leasehold.cli.runs.change:cancel", "Stop a run."),
    "cover": (
        "leasehold.cli.runs.cover:cover",
        "Which envelopes were asked to pay, and their answers.",
    ),
    "describe": (
        "leasehold.cli.runs.describe:describe",
        "Everything about a run, on one page.",
    ),
    "explain": (
        "leasehold.cli.runs.explain:explain",
        "Why a run waits, who pays, why it is placed there, why it was preempted.",
    ),
    "grow": ("leasehold.cli.runs.change:grow", "Ask for more GPUs for an elastic run."),
    "leases": (
        "leasehold.cli.runs.leases:leases",
        "Who used which GPUs and when, who paid, why it ended.",
    ),
    "list": (
        "leasehold.cli.runs.listing:list_runs",
        "List runs with state, GPUs and payers.",
    ),
    "logs": ("leasehold.cli.runs.logs:logs", "What the pods of a run printed."),
    "plan": ("leasehold.cli.runs.plan:plan", "What would happen if this were submitted now."),
    "pods": ("leasehold.cli.runs.pods:pods", "The pods of a run."),
    "report": ("leasehold.cli.runs.report:report", "GPU-hours by owner, payer, run, node or day."),
    "reservations": (
        "leasehold.cli.runs.reservations:reservations",
        "Planned starts, missing GPUs and odds.",
    ),
    "run": ("leasehold.cli.runs.run:run", "Run a command on GPUs, without a manifest."),
    "shrink": ("leasehold.cli.runs.change:shrink", "Ask for fewer GPUs for an elastic run."),
    "sponsors": ("leasehold.cli.runs.sponsors:sponsors", "Who may sponsor a run."),
    "submit": (
        "leasehold.cli.runs.submit:submit",
        "Submit Runs and Budgets, and show what happens to them.",
    ),
    "watch": ("leasehold.cli.runs.watch:watch", "A live view, until the run ends."),
    "who-pays": ("leasehold.cli.runs.who_pays:who_pays", "Who pays for a run, now and to date."),
}


class RunsGroup(LazyGroup):
    """The group of commands. Ctrl-C ends a command without an error message."""

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise SystemExit(128 + signal.SIGINT) from None


@click.command("runs", cls=RunsGroup, members=COMMANDS)
def command() -> None:
    """One command for each question about runs, leases and budgets."""
