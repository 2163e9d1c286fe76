"""`leasehold ledger compact` on a cluster: asks the leading replica through the API server.

Uses the caller's own rights. A compaction may take long, and the leader may change meanwhile. So
the request is repeated until a replica reports that the compaction has ended.
"""

import time

import msgspec

from leasehold.app.failure import Failure
from leasehold.cli.runs.server import Server, connect
from leasehold.shell.archive.compactor import Compacted
from leasehold.shell.archive.requests import NAME, CompactionState

WAIT_S = 3600
GONE_S = 60  # how long there may be no leader in between
PAUSE_S = 0.5


def ask_cluster(kubeconfig: str, context: str, keep: str) -> tuple[Compacted | None, str]:
    """Request a compaction and wait for its end. Return what left the store, and the problem there
    was ("" if none). Raises `Failure`."""
    server = connect(kubeconfig, context, timeout_s=60)
    deadline = time.monotonic() + WAIT_S
    told = _asked(server, keep, "")
    heard = time.monotonic()
    while not told.ended:
        if time.monotonic() > deadline:
            problem = f"the compaction has not ended within {WAIT_S} s; see the controller's log"
            return told.compacted, problem
        try:
            told = _asked(server, keep, told.request)
            heard = time.monotonic()
        except Failure as failure:
            # These come from a replica that is gone or not leading yet; other errors are real.
            if failure.status not in (0, 502, 503, 504) or time.monotonic() - heard > GONE_S:
                raise
            time.sleep(PAUSE_S)
    return told.compacted, told.problem


def _asked(server: Server, keep: str, request: str) -> CompactionState:
    try:
        answer = server.request(NAME, {"keep": keep, "request": request})
    except Failure as failure:
        if failure.status in (404, 405):
            raise Failure(
                f"{server.context.server} does not offer compaction; is leasehold's controller "
                "installed there? (for `leasehold up`, use --data)",
                status=failure.status,
            ) from None
        raise
    try:
        return msgspec.convert(answer, CompactionState)
    except msgspec.ValidationError as error:
        raise Failure(
            f"unexpected response from {server.context.server}: {error}; is this a "
            "leasehold API server?"
        ) from None
