"""Returns the batches of a live ledger to browsers that verify the chain on the dashboard."""

from leasehold.core.ledger.chain import canonical
from leasehold.core.names import Wire
from leasehold.core.objects.wire import part, text_at
from leasehold.ports.runtime import Clock
from leasehold.ports.store import NotFound, Store
from leasehold.shell.archive.checkpoints import read_checkpoint
from leasehold.shell.plane import Plane
from leasehold.web.dependencies import BatchLine, Chain


async def committed_chain(
    plane: Plane, store: Store, clock: Clock, *, after: int, limit: int
) -> Chain:
    """Return at most `limit` committed batches that come after batch number `after`, with the
    digest of the batch ahead of the first one."""
    specs = []
    for name in plane.controller.batches_from(after, limit + 1):
        try:
            specs.append(part(await store.get("LedgerBatch", "", name), "spec"))
        except NotFound:  # archived meanwhile
            continue
    lines = [
        BatchLine(_number(each), text_at(each, "digest"), canonical(each["batch"]).decode())
        for each in specs
    ]
    if lines and lines[0].seq == after:
        return Chain(lines[0].digest, lines[1:])
    archived, _ = await read_checkpoint(store, clock)
    return Chain(archived.digest, lines[:limit])


def _number(spec: Wire) -> int:
    found = spec.get("seq")
    assert isinstance(found, int), "a committed batch has its number"
    return found
