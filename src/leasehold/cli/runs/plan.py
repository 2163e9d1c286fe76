"""`kubectl runs plan`: what would happen if a Run were submitted now."""

import click

from leasehold.app.failure import Failure
from leasehold.cli.runs.files import filename_option, runs_only
from leasehold.cli.runs.options import Session, with_session
from leasehold.cli.runs.output import cell, local, part, rows, table, words
from leasehold.core.names import Wire


@click.command("plan")
@click.argument("run", required=False)
@filename_option()
@with_session()
def plan(session: Session, run: str | None, filenames: tuple[str, ...]) -> None:
    """Show what would happen if you submitted this now: payers, places, start, preemptions, odds.

    Changes nothing. With RUN, shows the plan of a waiting run.
    """
    for answer in ask_about(session, "plan", run, filenames):
        session.show(answer, _rendered)


def ask_about(
    session: Session, question: str, run: str | None, filenames: tuple[str, ...]
) -> list[Wire]:
    """Send a query about each Run in the files, or about the existing run. Return the answers."""
    if bool(run) == bool(filenames):
        raise Failure(f"name a RUN or a file with -f: kubectl runs {question} RUN")
    if run:
        return [session.server.ask(question, session.of_run(run))]
    found = runs_only(filenames, session.namespace)
    return [session.server.ask(question, {"namespace": _namespace(each)}, each) for each in found]


def _namespace(manifest: Wire) -> str:
    """Return the namespace that a manifest names. It may differ from that of the context."""
    return str(part(manifest, "metadata.namespace") or "")


def _rendered(answer: Wire, wide: bool) -> list[str]:
    lines = [f"{cell(answer, 'run')} ({cell(answer, 'owner')}): {cell(answer, 'verdict')}"]
    lines += [f"  {each}" for each in (*words(answer, "sentences"), *words(answer, "notes"))]
    start = cell(answer, "start")
    if start != "-":
        sure = cell(answer, "confidence")
        lines.append(f"start: {local(start)}" + ("" if sure == "-" else f" ({sure})"))
    lines += section("payers", payer_table(answer))
    lines += section("places", place_table(answer))
    odds = [[cell(each, "run"), f"{cell(each, 'percent')} %"] for each in rows(answer, "odds")]
    lines += section("odds", table(["RUN", "DRAWN"], odds) if odds else [])
    lines += section("remedies", [f"- {each}" for each in words(answer, "remedies")])
    if wide:
        lines += section("walk", walk_table(answer, "walk"))
    return lines


def section(title: str, lines: list[str]) -> list[str]:
    return [f"{title}:", *(f"  {line}" for line in lines)] if lines else []


def payer_table(answer: Wire) -> list[str]:
    body = [
        [cell(each, key) for key in ("envelope", "payerOwner", "relation", "gpus")]
        for each in rows(answer, "payers")
    ]
    return table(["ENVELOPE", "OWNER", "RELATION", "GPUS"], body) if body else []


def place_table(answer: Wire) -> list[str]:
    body = [
        [cell(each, key) for key in ("group", "node", "domain", "gpus", "spare")]
        for each in rows(answer, "places")
    ]
    return table(["GROUP", "NODE", "DOMAIN", "GPUS", "SPARE"], body) if body else []


def walk_table(answer: Wire, path: str) -> list[str]:
    body = [
        [cell(each, "envelope"), cell(each, "relation"), cell(each, "verdict"), cell(each, "says")]
        for each in rows(answer, path)
    ]
    return table(["ENVELOPE", "RELATION", "TAKEN", "WHY"], body) if body else []
