"""`kubectl runs logs RUN`: what its pods printed; lines of several pods carry a prefix."""

import sys
import threading
from urllib.parse import quote

import click

from leasehold.cli.runs.failure import Failure
from leasehold.cli.runs.kubeconfig import Wire
from leasehold.cli.runs.options import Session, with_session
from leasehold.cli.runs.output import cell, rows
from leasehold.cli.runs.server import Server


@click.command("logs")
@click.argument("run")
@click.option("--group", type=click.IntRange(min=0), help="Only pods of this group.")
@click.option("--pod", default="", help="Only this pod: its name, or its index in its group.")
@click.option("-f", "--follow", is_flag=True, help="Go on until the pods end.")
@click.option("--tail", type=click.IntRange(min=0), help="Only the last so many lines of each.")
@with_session(forms=("text",))
def logs(
    session: Session, run: str, group: int | None, pod: str, follow: bool, tail: int | None
) -> None:
    """What the pods of a run printed."""
    answer = session.server.ask("pods", session.of_run(run))
    found = [each for each in rows(answer) if _is_wanted(each, group, pod)]
    if not found:
        name = cell(answer, "run")
        if not rows(answer):
            raise Failure(f"{name} has no pods now; `kubectl runs explain` says why")
        raise Failure(f"{name} has no such pod; `kubectl runs pods` lists them")
    query = f"follow={'true' if follow else 'false'}"
    query += "" if tail is None else f"&tailLines={tail}"
    if len(found) == 1:
        _copy(session.server, _path(found[0], query), b"", threading.Lock())
    elif follow:
        _follow_all(session.server, found, query)
    else:
        for each in found:
            _copy(session.server, _path(each, query), _prefix(each), threading.Lock())


def _is_wanted(pod: Wire, group: int | None, wanted: str) -> bool:
    if group is not None and pod.get("group") != group:
        return False
    return wanted in ("", cell(pod, "name"), cell(pod, "index"))


def _path(pod: Wire, query: str) -> str:
    namespace, name = (quote(cell(pod, key), safe="") for key in ("namespace", "name"))
    return f"/api/v1/namespaces/{namespace}/pods/{name}/log?{query}"


def _prefix(pod: Wire) -> bytes:
    return f"[{cell(pod, 'group')}.{cell(pod, 'index')}] ".encode()


def _copy(server: Server, path: str, prefix: bytes, lock: threading.Lock) -> None:
    out = sys.stdout.buffer
    for line in server.lines(path):
        with lock:
            out.write(prefix + line if line.endswith(b"\n") else prefix + line + b"\n")
            out.flush()


def _follow_all(server: Server, pods: list[Wire], query: str) -> None:
    """One thread a pod; a failure of one is told when the others are done."""
    lock = threading.Lock()
    failures: list[Exception] = []

    def follow(pod: Wire) -> None:
        mine = server.another()
        try:
            _copy(mine, _path(pod, query), _prefix(pod), lock)
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
