"""Prints what the pods of a run print, from the first pod to the last, over all its attempts."""

import threading

from leasehold.app.failure import Failure
from leasehold.cli.runs.logs import LogOf, copy_log, prefix_of
from leasehold.cli.runs.options import Session
from leasehold.cli.runs.output import cell, rows
from leasehold.cli.runs.waiting import AWAY, rows_until_over
from leasehold.core.names import Wire

_ENDED = ("Succeeded", "Failed")


def follow_run(session: Session, run: tuple[str, str]) -> Wire:
    """Print the lines of every pod of the run as they come. Return the run's row of the `runs`
    answer when the run is over."""
    params: dict[str, str | None] = {"namespace": run[0], "run": run[1]}
    followed: dict[str, _Followed] = {}
    lock = threading.Lock()
    row: Wire = {}
    for row in rows_until_over(session, run, timeout_s=0):
        for pod in _pods(session, params):
            name = cell(pod, "name")
            if name not in followed and cell(pod, "phase") != "Ordered":
                is_many = cell(row, "width.desired") != cell(pod, "gpus")
                prefix = prefix_of(pod) if is_many else b""
                followed[name] = _Followed(session, pod, prefix, lock)
            if name in followed and cell(pod, "phase") not in _ENDED:
                followed[name].go_on()
    for each in followed.values():
        each.finish()
    return row


def _pods(session: Session, params: dict[str, str | None]) -> list[Wire]:
    try:
        return rows(session.server.ask("pods", params))
    except Failure as failure:
        if failure.status not in AWAY:
            raise
        return []  # asked again in a moment


class _Followed:
    """Prints the log of one pod. If the stream breaks off because the server restarts, it is
    continued."""

    def __init__(self, session: Session, pod: Wire, prefix: bytes, lock: threading.Lock) -> None:
        self._server = session.server
        self._place = (cell(pod, "namespace"), cell(pod, "name"))
        self._prefix = prefix
        self._lock = lock
        self._printed = [0]
        self._thread: threading.Thread | None = None

    def go_on(self) -> None:
        if self._thread is None or not self._thread.is_alive():
            self._thread = threading.Thread(target=self._copy, args=("follow=true",), daemon=True)
            self._thread.start()

    def finish(self) -> None:
        """Print the lines that are not printed yet, after the pod has ended."""
        if self._thread is not None:
            self._thread.join()
        self._copy("follow=false")

    def _copy(self, query: str) -> None:
        server = self._server.another()
        try:
            log = LogOf(*self._place, query)
            copy_log(server, log, self._prefix, self._lock, self._printed)
        except (Failure, BrokenPipeError):
            return  # tried again while the pod runs; how the run ended is reported anyway
        finally:
            server.close()
