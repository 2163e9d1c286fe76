"""`leasehold ledger compact` of a cluster: asks the replica that decides, through the API server.

With the caller's own rights, as every question. A compaction may take long, and another replica may
come to decide meanwhile: it is asked again until one of them has ended it.
"""

import time

import msgspec

from leasehold.cli.runs.failure import Failure
from leasehold.cli.runs.server import Server, connect
from leasehold.shell.archive.compactor import Compacted
from leasehold.shell.archive.requests import NAME, CompactionTold

WAIT_S = 3600
GONE_S = 60  # that nobody may decide in between
PAUSE_S = 0.5


def ask_cluster(kubeconfig: str, context: str, keep: str) -> tuple[Compacted | None, str]:
    """What left the store, and what stood in the way; raises `Failure`."""
    server = connect(kubeconfig, context, timeout_s=60)
    deadline = time.monotonic() + WAIT_S
    told = _asked(server, keep, "")
    heard = time.monotonic()
    while not told.ended:
        if time.monotonic() > deadline:
            return told.compacted, f"it has not ended in {WAIT_S} s; look at the controller's log"
        try:
            told = _asked(server, keep, told.request)
            heard = time.monotonic()
        except Failure as failure:
            # Who has come to decide says so; who was asked and is gone does not.
            if failure.status not in (0, 502, 503, 504) or time.monotonic() - heard > GONE_S:
                raise
            time.sleep(PAUSE_S)
    return told.compacted, told.problem


def _asked(server: Server, keep: str, request: str) -> CompactionTold:
    try:
        answer = server.request(NAME, {"keep": keep, "request": request})
    except Failure as failure:
        if failure.status in (404, 405):
            raise Failure(
                f"{server.context.server} compacts nothing when it is asked: it is no cluster with "
                "leasehold's controller; `leasehold up` is asked with --data",
                status=failure.status,
            ) from None
        raise
    try:
        return msgspec.convert(answer, CompactionTold)
    except msgspec.ValidationError as error:
        raise Failure(f"{server.context.server} answers what nobody understands: {error}") from None
