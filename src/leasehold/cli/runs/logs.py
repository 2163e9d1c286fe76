"""`kubectl runs logs RUN`: what a run's pods printed. With several pods, each line has a prefix.

Pods of earlier attempts no longer exist. Their names are in the ledger, and the agent keeps their
output for a while.
"""

import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote, urlencode

import click

from leasehold.app.failure import Failure
from leasehold.app.visible import say
from leasehold.cli.runs.options import Session, with_session
from leasehold.cli.runs.output import cell, rows
from leasehold.cli.runs.server import Server
from leasehold.core.names import Wire
from leasehold.core.units import SECOND, parse_instant, parse_span


@dataclass(frozen=True)
class LogOf:
    """The log of one pod, and the URL query that selects a part of the log."""

    namespace: str
    pod: str
    query: str

    @property
    def path(self) -> str:
        namespace, name = (quote(each, safe="") for each in (self.namespace, self.pod))
        return f"/api/v1/namespaces/{namespace}/pods/{name}/log?{self.query}"


@click.command("logs")
@click.argument("run")
@click.option("--group", type=click.IntRange(min=0), help="Only pods of this group.")
@click.option("--pod", default="", help="Only this pod: its name, or its index in its group.")
@click.option("-f", "--follow", is_flag=True, help="Follow the output until the pods end.")
@click.option("--tail", type=click.IntRange(min=0), help="Only the last N lines of each pod.")
@click.option("--since", default="", help="Only lines since then: a duration (10m) or a time.")
@click.option("--timestamps", is_flag=True, help="Show the time of each line.")
@click.option("--attempt", type=click.IntRange(min=1), help="Show the output of this attempt.")
@click.option(
    "-p", "--previous", is_flag=True, help="Show the output of the attempt before the newest."
)
@with_session(forms=("text",))
def logs(
    session: Session,
    run: str,
    group: int | None,
    pod: str,
    follow: bool,
    tail: int | None,
    since: str,
    timestamps: bool,
    attempt: int | None,
    previous: bool,
) -> None:
    """Show the output of the pods of a run; the output of earlier attempts is kept for a week."""
    if attempt is not None and previous:
        raise Failure("--attempt and --previous both select an attempt; use only one")
    answer = session.server.ask("pods", session.of_run(run))
    every = [] if attempt is not None or previous else rows(answer)
    if not every:  # the pods are gone, but the ledger knows their names
        leases = rows(session.server.ask("leases", session.of_run(run)))
        every = _earlier(leases, attempt, back=1 if previous else 0)
    found = [each for each in every if _is_wanted(each, group, pod)]
    if not found:
        raise _none(run, answer, attempt, previous, bool(every))
    query = _query(follow=follow, tail=tail, since=since, timestamps=timestamps)
    if len(found) == 1:
        copy_log(session.server, _log_of(found[0], query), b"", threading.Lock())
    elif follow:
        _follow_all(session.server, found, query)
    else:
        _copy_all(session.server, found, query)


def _none(run: str, answer: Wire, attempt: int | None, previous: bool, has_others: bool) -> Failure:
    name = cell(answer, "run") if cell(answer, "run") != "-" else run
    if has_others:
        return Failure(f"{name} has no such pod; `kubectl runs pods` lists them")
    if previous:
        return Failure(f"{name} has had only one attempt")
    if attempt is not None:
        return Failure(
            f"{name} has had no attempt {attempt}; `kubectl runs explain -o wide` lists its "
            "attempts"
        )
    return Failure(f"{name} has no pods now; `kubectl runs explain` shows why")


def _query(*, follow: bool, tail: int | None, since: str, timestamps: bool) -> str:
    params = {"follow": "true" if follow else "false"}
    if tail is not None:
        params["tailLines"] = str(tail)
    if timestamps:
        params["timestamps"] = "true"
    if since:
        span = parse_span(since) if since.isascii() else None
        if span is not None:
            params["sinceSeconds"] = str(max(1, span // SECOND))
        elif parse_instant(since) is not None:
            params["sinceTime"] = since
        else:
            raise Failure(
                f"--since {since!r}: use a duration (10m) or a time (2026-11-15T00:00:00Z)"
            )
    return urlencode(params)


def _earlier(leases: Sequence[Wire], attempt: int | None, *, back: int) -> list[Wire]:
    """Return the pods of an attempt, from the run's leases. Without a number, return for each place
    in the run its newest pod; with `back` 1, the one before that."""
    pods: dict[tuple[int, int], dict[int, Wire]] = {}
    for lease in leases:
        group, index, number = lease.get("group"), lease.get("index"), lease.get("attempt")
        namespace, _, name = cell(lease, "pod").partition("/")
        if name and isinstance(group, int) and isinstance(index, int) and isinstance(number, int):
            place = pods.setdefault((group, index), {})
            place[number] = {"namespace": namespace, "name": name, "group": group, "index": index}
    found = []
    for _, place in sorted(pods.items()):
        numbers = sorted(place)
        chosen = attempt
        if chosen is None and len(numbers) > back:
            chosen = numbers[-1 - back]
        if chosen is not None and chosen in place:
            found.append(place[chosen])
    return found


def _is_wanted(pod: Wire, group: int | None, wanted: str) -> bool:
    if group is not None and pod.get("group") != group:
        return False
    return wanted in ("", cell(pod, "name"), cell(pod, "index"))


def _log_of(pod: Wire, query: str) -> LogOf:
    return LogOf(cell(pod, "namespace"), cell(pod, "name"), query)


def prefix_of(pod: Wire) -> bytes:
    return f"[{cell(pod, 'group')}.{cell(pod, 'index')}] ".encode()


def copy_log(
    server: Server,
    log: LogOf,
    prefix: bytes,
    lock: threading.Lock,
    printed: list[int] | None = None,
) -> None:
    """Copy a log to standard output. `printed` holds the number of lines that were printed before:
    these are skipped, so that an interrupted log can be continued. It is updated."""
    out = sys.stdout.buffer
    count = printed if printed is not None else [0]
    skip = count[0]
    try:
        for number, line in enumerate(server.lines(log.path)):
            if number < skip:
                continue
            with lock:
                out.write(prefix + line if line.endswith(b"\n") else prefix + line + b"\n")
                out.flush()
            count[0] = number + 1
    except Failure as failure:
        if failure.status == 404:
            raise Failure(f"the output of {log.pod} is no longer available", status=404) from None
        raise


def _copy_all(server: Server, pods: list[Wire], query: str) -> None:
    """Copy the logs of several pods. A log that is no longer kept is reported on stderr. Raise an
    error only if none is kept."""
    gone: list[Failure] = []
    for each in pods:
        try:
            copy_log(server, _log_of(each, query), prefix_of(each), threading.Lock())
        except Failure as failure:
            if failure.status != 404:
                raise
            gone.append(failure)
    if len(gone) == len(pods):
        raise gone[0]
    for each_gone in gone:
        say(each_gone.format_message(), err=True)


def _follow_all(server: Server, pods: list[Wire], query: str) -> None:
    """Follow the logs of several pods, each in its own thread. If one fails, raise its error when
    all have ended."""
    lock = threading.Lock()
    failures: list[Exception] = []

    def follow(pod: Wire) -> None:
        mine = server.another()
        try:
            copy_log(mine, _log_of(pod, query), prefix_of(pod), lock)
        except (Failure, BrokenPipeError) as failure:
            failures.append(failure)
        finally:
            mine.close()

    threads = [threading.Thread(target=follow, args=(pod,), daemon=True) for pod in pods]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
