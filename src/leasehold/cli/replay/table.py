"""Formats a replay's report as a table: waits, preemptions and lost work by team, one row per
setting.

A setting is one combination of fleet, Budgets and configuration.
"""

from collections.abc import Sequence

from leasehold.app.visible import visible
from leasehold.cli.runs.output import span, table
from leasehold.core.units import SECOND, plural
from leasehold.sim.replay.figures import Figures, TeamFigures

HEAD = (
    "TEAM",
    "JOBS",
    "DONE",
    "FAILED",
    "NEVER STARTED",
    "MEAN WAIT",
    "MEDIAN",
    "P95",
    "LONGEST",
    "PREEMPTIONS",
    "GPU-HOURS",
    "LOST",
)
LETTERS = "AB"  # the names of two settings


def lines_of(replays: Sequence[Figures]) -> list[str]:
    """Return the lines of the table, followed by one sentence for each setting."""
    has_two = len(replays) > 1
    teams = [[each.total, *each.teams] for each in replays]
    body = []
    for rows in zip(*teams):
        for letter, row in zip(LETTERS, rows):
            body.append([*([letter] if has_two else []), *cells_of(row)])
    head = ["SETTING", *HEAD] if has_two else list(HEAD)
    found = table(head, body)
    for letter, replay in zip(LETTERS, replays):
        name = f"{letter}: {visible(replay.setting)}: " if has_two else ""
        found.append(f"{name}{summary_of(replay)}")
    return found


def cells_of(row: TeamFigures) -> list[str]:
    """Return a team's numbers, formatted for the columns in `HEAD`."""
    waits = row.waits
    spans = (
        ["-"] * 4
        if waits is None
        else [span_of(each) for each in (waits.mean, waits.median, waits.p95, waits.longest)]
    )
    return [
        visible(row.owner) or "all",
        str(row.jobs),
        str(row.completed),
        str(row.failed),
        str(row.never_started + row.unfinished),
        *spans,
        str(row.preemptions),
        f"{row.gpu_hours:.0f}",
        f"{row.lost_percent} %",
    ]


def span_of(seconds: float) -> str:
    """Format a number of seconds as kubectl does, such as `5m30s`."""
    return span(round(seconds * SECOND))


def summary_of(replay: Figures) -> str:
    """Return one sentence about all jobs of one replay: how busy the GPUs were, and what it cost to
    compute."""
    return (
        f"{replay.busy_percent} % of {plural(replay.gpus, 'GPU')} were in use from the first "
        f"submission to the last; {replay.turns} turns, {replay.cpu_seconds} CPU seconds"
    )
