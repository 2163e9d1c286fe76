"""Recovery: builds a World from the head, the checkpoint, the batches since, and all objects.

The order is: seal the head, read the ledger, list the other objects; then the loop decides. Called
at start, after being deposed, and after a decision that would break an invariant.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from leasehold.adapters.retry import until_answered
from leasehold.core.facts import Lease, Pod, ledger_order
from leasehold.core.ledger.batch import Batch
from leasehold.core.ledger.checkpoint import Announcement, BatchFacts, Carried
from leasehold.core.names import GROUP, Wire
from leasehold.core.objects.budget import budget_from_wire
from leasehold.core.objects.node import Labels, node_from_wire
from leasehold.core.objects.pod import pod_from_wire
from leasehold.core.objects.reservation import reservation_from_wire
from leasehold.core.objects.resolution import resolution_from_wire
from leasehold.core.objects.run import run_from_wire
from leasehold.core.objects.wire import part, text_at
from leasehold.core.policy import Policy
from leasehold.core.preemption.overdraft import was_enough
from leasehold.core.reservations import Reservation
from leasehold.core.units import Instant
from leasehold.core.world.world import Overdraft, World
from leasehold.ports.runtime import Clock
from leasehold.ports.store import Conflict, Listing, NotFound, Store
from leasehold.shell.archive.checkpoints import KIND as CHECKPOINTS
from leasehold.shell.archive.checkpoints import MAIN, Stored, read_checkpoint
from leasehold.shell.leadership.standby import Standby
from leasehold.shell.ledger.commit import Committed, Ledger
from leasehold.shell.ledger.known_ledger import KnownLedger
from leasehold.shell.ledger.read_leases import no_collection
from leasehold.shell.ledger.read_ledger import read_ledger
from leasehold.shell.loop.folding import as_heard
from leasehold.shell.loop.stored import Unreadable, must_read, readable

T = TypeVar("T")
_decode = msgspec.json.Decoder(dict[str, object]).decode

WATCHED = ("Budget", "Node", "Run", "Pod")
EPOCH = f"{GROUP}/epoch"  # annotation: the last epoch that saw the pod unbound


class Recovered:
    """What a recovery found: the World, the batches whose Lease objects are not written yet, and
    the store's versions to watch from."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.unmaterialised: list[Batch] = []
        self.versions: dict[str, int] = {}
        self.orphans: list[tuple[str, str]] = []  # name and uid of Resolutions that no batch names
        self.listed: dict[str, list[bytes]] = {}  # objects of the watched kinds
        self.unreadable: list[Unreadable] = []  # those that cannot be read


async def recover(
    store: Store,
    clock: Clock,
    ledger: Ledger,
    *,
    policy: Policy,
    labels: Labels,
    epoch: int | None = None,
    standby: Standby | None = None,
) -> Recovered:
    """Seal the head and read the whole World. Raise `Deposed` if another process leads by now. If
    `standby` has a copy of the ledger, the ledger is not read again."""
    sealed = await ledger.seal(epoch)
    known = None if standby is None else await standby.hand_over(sealed.head)
    found = await read_world(store, clock, ledger, policy=policy, labels=labels, known=known)
    if found.orphans:
        # The listing is newer than the chain: a newer leader's commit may name an orphan. If the
        # head is still ours, no commit does.
        await ledger.confirm()
    for name, uid in found.orphans:
        await _remove(store, clock, name, uid)
    return found


async def _remove(store: Store, clock: Clock, name: str, uid: str) -> None:
    """Delete a Resolution whose leader died before the commit. The head is sealed, so that commit
    can never happen, and the object would prove a preemption that did not happen. `uid` protects a
    newer object of the same name."""
    with suppress(NotFound, Conflict):
        await until_answered(clock, lambda: store.delete("Resolution", "", name, uid=uid))


async def touch_unbound(store: Store, clock: Clock, world: World, epoch: int) -> None:
    """Write to every pod without a node, after the head was sealed. A deposed leader may have
    confirmed the head just before and be about to bind such a pod. Its bind names the pod's old
    version, so it now fails."""
    for pod in list(world.pods.values()):
        if pod.run_uid and not pod.placed and not pod.has_ended:
            with suppress(NotFound):  # the watch will report it
                world.put_pod(_pod_reader(world.policy)(await _touched(store, clock, pod, epoch)))


async def _touched(store: Store, clock: Clock, pod: Pod, epoch: int) -> Wire:
    """Annotate the stored pod with our epoch and return it. If it has a node by now, return it
    unchanged."""
    while True:
        found = await until_answered(clock, lambda: store.get("Pod", pod.namespace, pod.name))
        if text_at(part(found, "spec"), "nodeName"):
            return found
        metadata = part(found, "metadata")
        notes = {**part(metadata, "annotations"), EPOCH: str(epoch)}
        wanted = {**found, "metadata": {**metadata, "annotations": notes}}
        with suppress(Conflict):
            return await until_answered(clock, partial(store.update, wanted))


async def read_world(
    store: Store,
    clock: Clock,
    ledger: Ledger,
    *,
    policy: Policy,
    labels: Labels,
    known: KnownLedger | None = None,
) -> Recovered:
    """Read the World for a ledger whose head was read already; write nothing."""
    sealed = ledger.known
    world = World(policy)
    found = Recovered(world)
    world.fold_head(sealed.head)
    carried, checkpoint = await read_checkpoint(store, clock)
    world.carry(carried)
    # The head stores `materialised` with the next batch; an archived batch was materialised.
    materialised = max(sealed.materialised, carried.seq)
    if known is None or not known.leads_on_from(carried):
        known, _ = await read_ledger(store, clock, sealed, carried)
    known.let_go(carried)
    chain = _known_chain(ledger, known)
    await _note_old_parts(store, clock, ledger, checkpoint)
    told = carried.told.copied()
    for batch in chain:
        told.read(batch)
    listings = {kind: await _list(store, clock, kind) for kind in ("Reservation", "Resolution")}
    watched = {kind: await _scan(store, clock, kind) for kind in WATCHED}
    found.versions = {kind: listing.version for kind, listing in listings.items()}
    found.versions |= {kind: version for kind, (_, version) in watched.items()}
    found.listed = {kind: bodies for kind, (bodies, _) in watched.items()}
    _put_watched(found, labels, max(clock.now(), sealed.head.instant))
    for wire in listings["Resolution"].items:
        resolution = must_read("Resolution", wire, resolution_from_wire)
        if resolution.name in told.resolutions:
            world.fold_resolution(resolution)
        else:
            found.orphans.append((resolution.name, text_at(part(wire, "metadata"), "uid")))
    found.unmaterialised = [batch for batch in chain if batch.seq > materialised]
    fold_leases(world, sorted(_present(known.leases, carried, ledger), key=ledger_order))
    for wire in listings["Reservation"].items:
        reservation = must_read("Reservation", wire, reservation_from_wire)
        if reservation.subject in told.reservations:
            said = told.reservations[reservation.subject]
            world.fold_reservation(_announced(reservation, said))
        elif reservation.batch <= carried.seq:
            ledger.leftovers["Reservation", reservation.subject] = None
    for pod in _read(found, "Pod", _pod_reader(policy)):
        world.put_pod(pod)
    _restore_told(world, told)
    return found


def _put_watched(found: Recovered, labels: Labels, now: Instant) -> None:
    """Put budgets, nodes and runs into the World, because leases refer to them. Pods follow after
    the leases."""
    for budget in _read(found, "Budget", budget_from_wire):
        found.world.put_budget(budget)
    for node in _read(found, "Node", lambda obj: node_from_wire(obj, labels=labels)):
        found.world.put_node(as_heard(node, None, now))
    for run in _read(found, "Run", run_from_wire):
        found.world.put_run(run)


def _read(found: Recovered, kind: str, read: Callable[[Wire], T]) -> Iterator[T]:
    return readable(kind, map(_decode, found.listed[kind]), read, found.unreadable)


def _pod_reader(policy: Policy) -> Callable[[Wire], Pod]:
    return lambda obj: pod_from_wire(obj, gpu_resource=policy.gpu_resource)


def fold_leases(world: World, leases: Iterable[Lease]) -> None:
    """Put all leases into the World; they must be in the order of the ledger."""
    with no_collection():
        for lease in leases:
            (world.fold_open if lease.is_open else world.fold_closed_lease)(lease)


def _present(leases: dict[str, Lease], carried: Carried, ledger: Ledger) -> list[Lease]:
    """Return the leases that are not summarised by the checkpoint. A summarised lease that still
    has an object is left over from an interrupted compaction, and is noted as a leftover."""
    found = []
    for lease in leases.values():
        if lease.closed is not None and carried.has_dropped(lease.closed.batch, lease.name):
            ledger.leftovers["Lease", lease.name] = None
        else:
            found.append(lease)
    return found


def _announced(reservation: Reservation, said: Announcement) -> Reservation:
    """Return the reservation with the announcement that the ledger has. The stored status may lack
    it."""
    return replace(
        reservation, batch=said.batch, announced=said.instant, commitment=said.commitment
    )


async def _list(store: Store, clock: Clock, kind: str) -> Listing:
    return await until_answered(clock, lambda: store.list(kind))


def _known_chain(ledger: Ledger, known: KnownLedger) -> list[Batch]:
    """Return the committed batches since the checkpoint, in order. Note batch and lease objects
    that are no longer needed as leftovers."""
    for seq, each in known.chain.items():
        ledger.chain[seq] = Committed(name=each.name, instant=each.batch.instant)
    ledger.leftovers.update((("Lease", name), None) for name in known.dropped)
    ledger.leftovers.update((("LedgerBatch", name), None) for name in known.strays())
    return [each.batch for each in known.chain.values()]


async def _note_old_parts(store: Store, clock: Clock, ledger: Ledger, stored: Stored) -> None:
    """Note the objects that hold parts of older checkpoints as leftovers."""
    listing = await _list(store, clock, CHECKPOINTS)
    for wire in listing.items:
        metadata = wire["metadata"]
        assert isinstance(metadata, dict)
        if metadata["name"] not in (MAIN, *stored.parts):
            ledger.leftovers[CHECKPOINTS, str(metadata["name"])] = None


async def _scan(store: Store, clock: Clock, kind: str) -> tuple[list[bytes], int]:
    bodies: list[bytes] = []

    async def scan() -> int:
        bodies.clear()  # an earlier attempt may have been interrupted
        return await store.scan(kind, bodies.append)

    return bodies, await until_answered(clock, scan)


def _restore_told(world: World, told: BatchFacts) -> None:
    """Put into the World what batches state besides leases: budgets, nodes, caps of GPU-hours that
    were lowered, and the newest announcement of each overdraft. Overdrafts that are over are
    dropped by the first turn."""
    world.fold_told(told)
    for (payer, lent), (envelope, at) in told.lowerings.items():
        if was_enough(world, envelope, lent=lent, at=at):
            world.fold_forgiven(payer, lent=lent)
    world.fold_caps()
    for subject, said in told.overdrafts.items():
        world.fold_overdraft(
            Overdraft(
                subject=subject, since=said.instant, batch=said.batch, commitment=said.commitment
            )
        )
