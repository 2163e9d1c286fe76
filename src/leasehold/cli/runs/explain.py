"""`kubectl runs explain RUN`: why a run waits, why it has these payers and places, and why it was
preempted.
"""

import click

from leasehold.cli.runs.options import Session, with_session
from leasehold.cli.runs.output import cell, local, rows, table, words
from leasehold.cli.runs.plan import place_table, section, walk_table
from leasehold.core.names import Wire


@click.command("explain")
@click.argument("run")
@with_session()
def explain(session: Session, run: str) -> None:
    """Explain why a run waits, who pays, where it runs, and why, how and for which run it was
    preempted."""
    session.show(session.server.ask("explain", session.of_run(run)), _rendered)


def _rendered(answer: Wire, wide: bool) -> list[str]:
    lines = words(answer, "sentences")
    remedies = words(answer, "remedies")
    if remedies:
        lines += ["What would help:", *(f"  - {each}" for each in remedies)]
    if wide:
        lines += section("walk", walk_table(answer, "walk"))
        lines += section("places", place_table(answer))
        lines += section("attempts", attempt_table(answer))
    return lines


def attempt_table(answer: Wire) -> list[str]:
    body = [
        [
            cell(each, "group"),
            cell(each, "attempt"),
            local(cell(each, "started")),
            local(cell(each, "ended")),
            cell(each, "outcome"),
            cell(each, "cause"),
        ]
        for each in rows(answer, "attempts")
    ]
    return table(["GROUP", "ATTEMPT", "STARTED", "ENDED", "OUTCOME", "CAUSE"], body) if body else []
