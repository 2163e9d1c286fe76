"""Waiting for runs, and the exit status of a run as a shell knows it.

Used by `submit --wait` and `run --follow`. A server that is away for a while, because it is
restarted, is waited for.
"""

import time
from collections.abc import Iterator

from leasehold.cli.runs.change import OVER
from leasehold.cli.runs.failure import Failure
from leasehold.cli.runs.options import Session
from leasehold.cli.runs.output import cell, rows
from leasehold.core.names import Wire

PAUSE_S = 0.2
AWAY_S = 60.0  # how long a server may be away
PHASES = ("Running", "Completed")
AWAY = (0, 429, 502, 503, 504)  # no answer at all, or none yet


def rows_until_over(session: Session, run: tuple[str, str], *, timeout_s: float) -> Iterator[Wire]:
    """How the run stands, again and again, until it is over; raises `Failure` after the timeout (0:
    none), or when the run is gone."""
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
            raise Failure(f"run {namespace}/{name} is not there yet after {timeout_s:g} s")
        time.sleep(PAUSE_S)


def left_alone(session: Session, run: tuple[str, str]) -> str:
    """Why the controller knows nothing of it: it is gone, or says something that cannot be; "" when
    it was merely not seen yet."""
    try:
        found = session.server.send("GET", session.server.run_path(*run))
    except Failure as failure:
        if failure.status != 404:
            raise
        return "it is not there any more"
    for each in rows(found, "status.conditions"):
        if cell(each, "type") == "Quarantined" and cell(each, "status") == "True":
            return cell(each, "message")
    return ""


def awaited(session: Session, run: tuple[str, str], until: str, timeout_s: float) -> Wire:
    """The run's row once it is Running, or over; with `Completed`, once it is over."""
    row: Wire = {}
    for row in rows_until_over(session, run, timeout_s=timeout_s):
        if until == "Running" and cell(row, "phase") == "Running":
            break
    return row


def exit_status(session: Session, row: Wire) -> int:
    """0 of a run that runs or has completed; of one that failed, the exit code of the first of its
    pods that has one, else 1."""
    if cell(row, "phase") != "Failed":
        return 0
    params = {"namespace": cell(row, "namespace"), "run": cell(row, "name")}
    for pod in rows(session.server.ask("pods", params)):
        code = pod.get("exitCode")
        if isinstance(code, int) and 0 < code < 256:
            return code
    return 1
