"""`kubectl runs who-pays RUN`: which envelopes pay for a run: its owner's, its family's and its
sponsors'.
"""

import click

from leasehold.cli.runs.options import Session, with_session
from leasehold.cli.runs.output import cell, rows, table
from leasehold.core.names import Wire
from leasehold.core.units import plural


@click.command("who-pays")
@click.argument("run")
@with_session()
def who_pays(session: Session, run: str) -> None:
    """Show who pays for a run: GPUs now, and GPU-hours in total. Also works for past runs."""
    session.show(session.server.ask("who-pays", session.of_run(run)), _rendered)


def _rendered(answer: Wire, wide: bool) -> list[str]:
    keys = ["envelope", "relation", "gpus", "gpuHours"]
    head = ["ENVELOPE", "RELATION", "GPUS", "GPU-HOURS"]
    if wide:
        keys.insert(1, "payerOwner")
        head.insert(1, "OWNER")
    body = [[cell(each, key) for key in keys] for each in rows(answer, "payers")]
    total = ["total", *("" for _ in keys[1:-2]), cell(answer, "gpus"), cell(answer, "gpuHours")]
    lines = [f"{cell(answer, 'run')} ({cell(answer, 'owner')}): {cell(answer, 'phase')}"]
    lines += table(head, [*body, total])
    if wide:
        lines += [
            f"{share}: {plural(cell(answer, f'shares.{share}.gpus'), 'GPU')}, "
            f"{cell(answer, f'shares.{share}.gpuHours')} GPU-hours"
            for share in ("owned", "shared", "borrowed")
        ]
    return lines
