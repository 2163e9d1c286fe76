"""`kubectl runs cover --explain`: every envelope that was asked to pay, in order, with the GPUs
that it pays for or the reason why it pays for none.
"""

import click

from leasehold.app.failure import Failure
from leasehold.cli.runs.files import filename_option
from leasehold.cli.runs.options import Session, with_session
from leasehold.cli.runs.output import cell, rows
from leasehold.cli.runs.plan import ask_about, walk_table
from leasehold.core.names import Wire


@click.command("cover")
@click.argument("run", required=False)
@click.option(
    "--explain", "explained", is_flag=True, help="Show every envelope that was asked to pay."
)
@filename_option()
@with_session()
def cover(session: Session, run: str | None, explained: bool, filenames: tuple[str, ...]) -> None:
    """Show who would pay for a run; with --explain, also every envelope that was asked, and its
    answer.

    For a RUN, shows the last evaluation; for a file, evaluates now.
    """
    answers = ask_about(session, "cover", run, filenames)
    for answer in answers:
        session.show(answer, lambda found, wide: _rendered(found, explained or wide))
    walks = [walk for answer in answers for walk in rows(answer, "walks")]
    if not any(walk.get("covered") for walk in walks) and session.form in ("table", "wide"):
        raise Failure("no envelopes pay for the whole run")


def _rendered(answer: Wire, explained: bool) -> list[str]:
    lines = [f"{cell(answer, 'run')} ({cell(answer, 'owner')})"]
    for walk in rows(answer, "walks"):
        place = cell(walk, "place")
        where = "" if place == "-" else f"in {place}: "
        if walk.get("covered"):
            paid = [
                f"{cell(step, 'envelope')} {cell(step, 'taken')}"
                for step in rows(walk, "steps")
                if step.get("taken")
            ]
            lines.append(f"{where}covered: {', '.join(paid)}")
        else:
            lines.append(f"{where}{cell(walk, 'reason')}: {cell(walk, 'remedy')}")
        if explained:
            lines += [f"  {line}" for line in walk_table(walk, "steps")]
    return lines
