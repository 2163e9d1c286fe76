"""What a run prints, from its first pod to its last, over all its attempts."""

import threading

from leasehold.cli.runs.failure import Failure
from leasehold.cli.runs.kubeconfig import Wire
from leasehold.cli.runs.logs import LogOf, copy_log, prefix_of
from leasehold.cli.runs.options import Session
from leasehold.cli.runs.output import cell, rows
from leasehold.cli.runs.waiting import rows_until_over


def follow_run(session: Session, run: tuple[str, str]) -> Wire:
    """Prints every pod's lines as they come; returns how the run stands when it is over."""
    params = {"namespace": run[0], "run": run[1]}
    followers: dict[str, threading.Thread] = {}
    lock = threading.Lock()
    row: Wire = {}
    for row in rows_until_over(session, run, timeout_s=0):
        for pod in rows(session.server.ask("pods", params)):
            name = cell(pod, "name")
            if name not in followers and cell(pod, "phase") != "Ordered":
                is_many = cell(row, "width.desired") != cell(pod, "gpus")
                prefix = prefix_of(pod) if is_many else b""
                thread = threading.Thread(
                    target=_follow, args=(session, pod, prefix, lock), daemon=True
                )
                followers[name] = thread
                thread.start()
    for thread in followers.values():
        thread.join()
    return row


def _follow(session: Session, pod: Wire, prefix: bytes, lock: threading.Lock) -> None:
    server = session.server.another()
    try:
        copy_log(
            server, LogOf(cell(pod, "namespace"), cell(pod, "name"), "follow=true"), prefix, lock
        )
    except (Failure, BrokenPipeError):
        pass  # its pod is gone, or nobody reads; how the run ended is told anyway
    finally:
        server.close()
