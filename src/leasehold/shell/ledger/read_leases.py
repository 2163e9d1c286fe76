"""Reads all leases: Lease objects, and committed batches that the objects do not reflect yet.

Called by `recover` for a new leader and by `standby` for a possible one.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
from msgspec.structs import replace

from leasehold.adapters.retry import until_answered
from leasehold.core.facts import Ending, Lease, Opened, Role, parse_why
from leasehold.core.ledger.batch import Batch, closure_of
from leasehold.core.objects.lease import leases_from_json, pod_name
from leasehold.ports.runtime import Clock
from leasehold.ports.store import Store
from leasehold.shell.loop.stored import must_read

_decode = msgspec.json.Decoder(dict[str, object]).decode


@contextmanager
def no_collection() -> Iterator[None]:
    """Disable garbage collection while the block creates many long-lived records. With a million
    leases, the collector would scan them again and again, for half the time of a restart."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


async def stored_leases(store: Store, clock: Clock) -> dict[str, Lease]:
    """Return all stored leases by name. Each object is decoded and dropped before the next one,
    because a hundred thousand decoded objects would need too much memory."""
    leases: dict[str, Lease] = {}

    def see(body: bytes) -> None:
        try:
            lease = leases_from_json(body)
        except Exception:
            lease = must_read("Lease", _decode(body), lambda _: leases_from_json(body))
        leases[lease.name] = lease

    with no_collection():
        await until_answered(clock, lambda: store.scan("Lease", see))
    return leases


def tell_leases(leases: dict[str, Lease], batch: Batch) -> None:
    """Apply a committed batch to `leases`. The result is the same if the leases reflect it
    already."""
    for name, reason, deadline in batch.ending:
        ending = Ending(why=parse_why(reason), deadline=deadline, batch=batch.seq, at=batch.instant)
        leases[name] = replace(leases[name], ending=ending)
    closed = []
    for closing in batch.closed:
        closure = closure_of(closing, batch.seq)
        lease = replace(leases[closing.lease], closed=closure)
        leases[lease.name] = lease
        closed.append(lease)
    for lease in batch.opened:
        leases[lease.name] = replace(leases.get(lease.name, lease), pod=_pod_name(lease, closed))


def _pod_name(lease: Lease, closed: list[Lease]) -> str:
    """Return the name of the lease's pod; "" for a spare. A refinanced lease keeps the pod of the
    lease in `closed` that it replaces; any other lease has a new pod."""
    if lease.role is Role.SPARE:
        return ""
    if lease.reason is not Opened.REFINANCE:
        return pod_name(lease.run, lease.batch, lease.group, lease.index)
    for old in closed:
        same = (old.uid, old.group, old.index, old.node) == (
            lease.uid,
            lease.group,
            lease.index,
            lease.node,
        )
        if same and set(lease.slots) <= set(old.slots):
            return old.pod
    raise AssertionError(f"{lease.name} replaces no lease")
