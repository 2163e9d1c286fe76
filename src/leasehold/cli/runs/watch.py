"""`kubectl runs watch [RUN]`: a live view until the user stops it or the run ends.

On a terminal it is a table that is drawn again; elsewhere it prints a line for every change.
"""

import json
import time
from contextlib import suppress

import click

from leasehold.app.failure import Failure
from leasehold.app.visible import say
from leasehold.cli.runs.change import OVER
from leasehold.cli.runs.listing import payers, run_table
from leasehold.cli.runs.options import Session, with_session
from leasehold.cli.runs.output import as_yaml, cell, is_terminal, local, rows
from leasehold.core.names import Wire

AWAY_S = 300.0  # how long to wait for a server that has answered before
RETRY_S = 0.5
_AWAY = (0, 502, 503, 504)  # statuses of an unreachable server, or of a proxy in between


@click.command("watch")
@click.argument("run", required=False)
@click.option(
    "-A", "--all-namespaces", is_flag=True, help="Runs of every namespace that you may see."
)
@click.option(
    "--interval",
    type=click.FloatRange(min=0.01, max=3600),
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    help="How often to refresh.",
)
@with_session()
def watch(session: Session, run: str | None, all_namespaces: bool, interval: float) -> None:
    """Show a live view. With RUN, the command exits when the run ends, with exit status 0 if the
    run completed."""
    if run and all_namespaces:
        raise Failure("a RUN is in one namespace; leave out -A")
    params: dict[str, str | None] = {"namespace": "" if all_namespaces else session.namespace}
    if run:
        params = session.of_run(run)
    if is_terminal() and session.form in ("table", "wide"):
        last = _live(session, params, interval, run, all_namespaces)
    else:
        last = _lines(session, params, interval, run)
    if run and last != "Completed":
        raise SystemExit(1)


def _ask(
    session: Session, params: dict[str, str | None], run: str | None, *, again: bool
) -> tuple[Wire, str]:
    """Return the answer to the query `runs`. Also return the phase of `run` if it is over;
    otherwise ""."""
    answer = _answer(session, params) if again else session.server.ask("runs", params)
    if not run:
        return answer, ""
    found = rows(answer)
    if not found:
        raise Failure(f"there is no run {params['namespace']}/{params['run']}")
    phase = cell(found[0], "phase")
    return answer, phase if phase in OVER else ""


def _answer(session: Session, params: dict[str, str | None]) -> Wire:
    """Return the answer to the query `runs`. If the server, which has answered before, is
    unreachable, wait for it: it may be restarting."""
    away_since = 0.0
    while True:
        try:
            answer = session.server.ask("runs", params)
        except Failure as failure:
            now = time.monotonic()
            if failure.status not in _AWAY or (away_since and now - away_since > AWAY_S):
                raise
            if not away_since:
                away_since = now
                say(f"{failure.format_message()}; trying again", err=True)
        else:
            if away_since:
                say("the server answers again", err=True)
            return answer
        time.sleep(RETRY_S)
        with suppress(Failure):  # the kubeconfig may just be written
            session.reconnect()


def _lines(
    session: Session, params: dict[str, str | None], interval: float, run: str | None
) -> str:
    """Print a line for every run that changed, until `run` is over. Return the phase of `run`
    then."""
    known: dict[str, str] = {}
    again = False
    while True:
        answer, ended = _ask(session, params, run, again=again)
        again = True
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
    """Print a change of one run: as a sentence, or the whole row as a JSON line or a YAML
    document."""
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
    from rich.console import Console  # only needed on terminals
    from rich.live import Live
    from rich.text import Text

    def drawn(answer: Wire) -> Text:
        lines = run_table(answer, session.form == "wide", all_namespaces)
        if run:
            lines += [cell(row, "message") for row in rows(answer)]
        return Text.from_ansi("\n".join(lines))

    answer, ended = _ask(session, params, run, again=False)
    with Live(drawn(answer), console=Console(), auto_refresh=False) as live:
        while not ended:
            time.sleep(interval)
            answer, ended = _ask(session, params, run, again=True)
            live.update(drawn(answer), refresh=True)
    return ended
