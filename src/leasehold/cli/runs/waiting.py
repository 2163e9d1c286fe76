"""Waits for runs, and computes the exit status of a run for a shell.

Used by `submit --wait` and `run --follow`. If the server is restarted meanwhile, the waiting
continues.
"""

import time
from collections.abc import Iterator

from leasehold.app.failure import Failure
from leasehold.cli.runs.change import OVER
from leasehold.cli.runs.options import Session
from leasehold.cli.runs.output import cell, rows
from leasehold.core.names import Wire

PAUSE_S = 0.2
AWAY_S = 60.0  # how long a server may be unreachable
PHASES = ("Running", "Completed")
AWAY = (0, 429, 502, 503, 504)  # HTTP statuses of an unreachable server; 0: no answer


def rows_until_over(session: Session, run: tuple[str, str], *, timeout_s: float) -> Iterator[Wire]:
    """Yield the run's row of the `runs` answer again and again, until the run is over.

    Raises `Failure` after `timeout_s` seconds (0: no limit), or if the run no longer exists.
    """
    namespace, name = run
    deadline = time.monotonic() + timeout_s
    away_since: float | None = None
    while True:
        found: list[Wire] = []
        try:
            found = rows(session.server.ask("runs", {"namespace": namespace, "run": name}))
            away_since = None
        except Failure as failure:
            now = time.monotonic()
            away_since = away_since if away_since is not None else now
            if failure.status not in AWAY or now - away_since > AWAY_S:
                raise
        if found:
            yield found[0]
            if cell(found[0], "phase") in OVER:
                return
        elif away_since is None and (why := left_alone(session, run)):
            raise Failure(f"run {namespace}/{name}: {why}")
        if timeout_s and time.monotonic() >= deadline:
            state = f"is still {cell(found[0], 'phase')}" if found else "was not seen yet"
            raise Failure(f"timed out after {timeout_s:g} s: run {namespace}/{name} {state}")
        time.sleep(PAUSE_S)


def left_alone(session: Session, run: tuple[str, str]) -> str:
    """Return why the controller does not know the run: it no longer exists, or it is quarantined.
    Return "" if the controller just has not seen it yet."""
    try:
        found = session.server.send("GET", session.server.run_path(*run))
    except Failure as failure:
        if failure.status != 404:
            raise
        return "the run no longer exists"
    for each in rows(found, "status.conditions"):
        if cell(each, "type") == "Quarantined" and cell(each, "status") == "True":
            return cell(each, "message")
    return ""


def awaited(session: Session, run: tuple[str, str], until: str, timeout_s: float) -> Wire:
    """Wait until the run is over, or, with `until` "Running", until it runs. Return its row of the
    `runs` answer."""
    row: Wire = {}
    for row in rows_until_over(session, run, timeout_s=timeout_s):
        if until == "Running" and cell(row, "phase") == "Running":
            break
    return row


def exit_status(session: Session, row: Wire) -> int:
    """Return the exit status for a run. It is 0 unless the run has failed. For a failed run it is
    the first exit code of its pods that is not 0, or 1 if there is none."""
    if cell(row, "phase") != "Failed":
        return 0
    params = {"namespace": cell(row, "namespace"), "run": cell(row, "name")}
    for pod in rows(session.server.ask("pods", params)):
        code = pod.get("exitCode")
        if isinstance(code, int) and 0 < code < 256:
            return code
    return 1
