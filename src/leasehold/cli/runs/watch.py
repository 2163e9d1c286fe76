"""`kubectl runs watch [RUN]`: a live view until the user stops it or the run ends.

On a terminal a table that is drawn anew; elsewhere a line for every change, for logs and pipes.
"""

import json
import time

import click

from leasehold.cli.runs.change import OVER
from leasehold.cli.runs.failure import Failure
from leasehold.cli.runs.kubeconfig import Wire
from leasehold.cli.runs.listing import payers, run_table
from leasehold.cli.runs.options import Session, with_session
from leasehold.cli.runs.output import as_yaml, cell, is_terminal, local, rows


@click.command("watch")
@click.argument("run", required=False)
@click.option("-A", "--all-namespaces", is_flag=True, help="Runs of every namespace you see.")
@click.option("--interval", type=click.FloatRange(min=0.01, max=3600), default=1.0,
              show_default=True, metavar="SECONDS", help="How often to look.")  # fmt: skip
@with_session()
def watch(session: Session, run: str | None, all_namespaces: bool, interval: float) -> None:
    """A live view; of one RUN until it ends, and then its exit status is 0 if it completed."""
    if run and all_namespaces:
        raise Failure("a RUN lies in one namespace; leave out -A")
    params: dict[str, str | None] = {"namespace": "" if all_namespaces else session.namespace}
    if run:
        params = session.of_run(run)
    if is_terminal() and session.form in ("table", "wide"):
        last = _live(session, params, interval, run, all_namespaces)
    else:
        last = _lines(session, params, interval, run)
    if run and last != "Completed":
        raise SystemExit(1)


def _ask(session: Session, params: dict[str, str | None], run: str | None) -> tuple[Wire, str]:
    """The answer, and the last phase of the run once it is over."""
    answer = session.server.ask("runs", params)
    if not run:
        return answer, ""
    found = rows(answer)
    if not found:
        raise Failure(f"there is no run {params['namespace']}/{params['run']}")
    phase = cell(found[0], "phase")
    return answer, phase if phase in OVER else ""


def _lines(
    session: Session, params: dict[str, str | None], interval: float, run: str | None
) -> str:
    """A line for every run that changed."""
    known: dict[str, str] = {}
    while True:
        answer, ended = _ask(session, params, run)
        for row in rows(answer):
            name = f"{cell(row, 'namespace')}/{cell(row, 'name')}"
            line = _line(row, session.form == "wide")
            if known.get(name) != line:
                known[name] = line
                _tell(session.form, answer, row, f"{name} {line}")
        if ended:
            return ended
        time.sleep(interval)


def _tell(form: str, answer: Wire, row: Wire, line: str) -> None:
    """A sentence, or the whole row as a JSON line or a YAML document."""
    if form == "json":
        click.echo(json.dumps({"now": answer["now"], **row}, ensure_ascii=False))
    elif form == "yaml":
        click.echo("---\n" + as_yaml({"now": answer["now"], **row}), nl=False)
    else:
        click.echo(f"{local(cell(answer, 'now'))} {line}")


def _line(row: Wire, wide: bool) -> str:
    width = f"{cell(row, 'width.allocated')}/{cell(row, 'width.desired')}"
    line = f"{cell(row, 'phase')} {width} GPUs: {cell(row, 'message')}"
    return f"{line} [{payers(row)}]" if wide else line


def _live(
    session: Session,
    params: dict[str, str | None],
    interval: float,
    run: str | None,
    all_namespaces: bool,
) -> str:
    from rich.console import Console  # only a terminal needs it
    from rich.live import Live
    from rich.text import Text

    def drawn(answer: Wire) -> Text:
        lines = run_table(answer, session.form == "wide", all_namespaces)
        if run:
            lines += [cell(row, "message") for row in rows(answer)]
        return Text.from_ansi("\n".join(lines))

    answer, ended = _ask(session, params, run)
    with Live(drawn(answer), console=Console(), auto_refresh=False) as live:
        while not ended:
            time.sleep(interval)
            answer, ended = _ask(session, params, run)
            live.update(drawn(answer), refresh=True)
    return ended
