"""`kubectl runs sponsors list|add|remove RUN [OWNER]`: show or edit the sponsors of a run."""

import click

from leasehold.app.failure import Failure
from leasehold.cli.runs.change import changed
from leasehold.cli.runs.options import Session, with_session
from leasehold.cli.runs.output import cell, part, rows, table, words
from leasehold.core.names import Wire
from leasehold.core.units import plural


@click.group("sponsors")
def sponsors() -> None:
    """Show or edit the sponsors of a run."""


@sponsors.command("list")
@click.argument("run")
@with_session()
def list_sponsors(session: Session, run: str) -> None:
    """List the sponsors of a run, in the order in which they are asked."""
    session.show(session.server.ask("sponsors", session.of_run(run)), _rendered)


@sponsors.command("add")
@click.argument("run")
@click.argument("owner")
@with_session()
def add(session: Session, run: str, owner: str) -> None:
    """Let OWNER sponsor a run; OWNER is asked after the sponsors that the run already names."""
    namespace, name = session.run(run)

    def added(found: Wire) -> Wire:
        named = words(found, "spec.funding.sponsors")
        if owner in named:
            raise Failure(f"{owner} is already a sponsor of {namespace}/{name}")
        if part(found, "spec.funding.allowBorrow") is not True:
            raise Failure(
                f"run {namespace}/{name} does not borrow (spec.funding.allowBorrow), and that "
                "field cannot be edited; delete the run and submit another one that borrows"
            )
        return {"spec": {"funding": {"sponsors": [*named, owner]}}}

    _, after = changed(session, namespace, name, added)
    line = f"run {namespace}/{name}: sponsors {', '.join(words(after, 'spec.funding.sponsors'))}"
    session.show(after, lambda _found, _wide: [line])


@sponsors.command("remove")
@click.argument("run")
@click.argument("owner")
@with_session()
def remove(session: Session, run: str, owner: str) -> None:
    """No longer let OWNER sponsor a run; current loans continue until they end."""
    namespace, name = session.run(run)

    def removed(found: Wire) -> Wire:
        named = words(found, "spec.funding.sponsors")
        if owner not in named:
            known = ", ".join(named) or "nobody"
            raise Failure(
                f"{owner} is not a sponsor of {namespace}/{name}; its sponsors are: {known}"
            )
        left = [each for each in named if each != owner]
        return {"spec": {"funding": {"sponsors": left}}}

    _, after = changed(session, namespace, name, removed)
    left = ", ".join(words(after, "spec.funding.sponsors")) or "none"
    session.show(after, lambda _found, _wide: [f"run {namespace}/{name}: sponsors {left}"])


def _rendered(answer: Wire, wide: bool) -> list[str]:
    head = ["SPONSOR", "GPUS", "GPU-HOURS", "ENVELOPE", "SAYS"]
    more = ["NAMED"]
    body = []
    for row in rows(answer):
        base = [cell(row, "owner"), cell(row, "gpus"), cell(row, "gpuHours")]
        none: Wire = {"says": "has no envelope of this flavor"}
        for each in rows(row, "envelopes") or [none]:
            line = [*base, cell(each, "envelope"), cell(each, "says")]
            body.append([*line, cell(row, "named")] if wide else line)
    may = "may borrow" if part(answer, "allowBorrow") else "does not borrow"
    most = cell(answer, "maxBorrowGPUs")
    limit = "" if most == "-" else f", {plural(most, 'GPU')} at most"
    lines = [f"{cell(answer, 'run')} ({cell(answer, 'owner')}) {may}{limit}"]
    return lines + (table([*head, *(more if wide else [])], body) if body else ["no sponsors"])
