"""A World from the store: the head, the batches that are not materialised yet, and all objects.

The order is: seal, replay, list, then decide. Called at start, after being deposed, and after a
decision that broke an invariant.
"""

import gc
from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from leasehold.core.batch import Batch, batch_from_wire
from leasehold.core.chain import GENESIS, canonical, next_digest
from leasehold.core.facts import Ending, Lease, Opened, Reservation, Role
from leasehold.core.lowered import LoweredCaps
from leasehold.core.objects.budget import budget_from_wire
from leasehold.core.objects.lease import lease_from_wire, pod_name
from leasehold.core.objects.node import Labels, node_from_wire
from leasehold.core.objects.pod import pod_from_wire
from leasehold.core.objects.reservation import reservation_from_wire
from leasehold.core.objects.resolution import resolution_from_wire
from leasehold.core.objects.run import run_from_wire
from leasehold.core.policy import Policy
from leasehold.core.world import Overdraft, World, ledger_order
from leasehold.ports.runtime import Clock
from leasehold.ports.store import Listing, Store, Wire
from leasehold.shell.ledger import Ledger
from leasehold.shell.retry import until_answered

WATCHED = ("Budget", "Node", "Run", "Pod")
_ENVELOPE_PARTS = 3  # namespace/budget/envelope; a reservation's subject has two parts


class Recovered:
    """The World, the batches still to be materialised, and where to watch from."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.unmaterialised: list[Batch] = []
        self.versions: dict[str, int] = {}
        self.listed: dict[str, list[Wire]] = {}


async def recover(
    store: Store, clock: Clock, ledger: Ledger, *, policy: Policy, labels: Labels
) -> Recovered:
    """Everything that is known, listed consistently."""
    sealed = await ledger.seal()
    world = World(policy)
    found = Recovered(world)
    world.head = sealed.head
    chain = await _chain(store, clock, sealed.head.seq, sealed.head.digest)
    listings = {
        kind: await _list(store, clock, kind)
        for kind in (*WATCHED, "Lease", "Reservation", "Resolution")
    }
    for wire in listings["Budget"].items:
        world.put_budget(budget_from_wire(wire))
    for wire in listings["Node"].items:
        world.put_node(node_from_wire(wire, labels=labels))
    for wire in listings["Run"].items:
        world.put_run(run_from_wire(wire))
    committed = {name for batch in chain for name, _ in batch.resolutions}
    for wire in listings["Resolution"].items:
        resolution = resolution_from_wire(wire)
        if resolution.name in committed:
            world.fold_resolution(resolution)
    leases = _leases(listings["Lease"].items, chain, sealed.materialised)
    fold_leases(world, sorted(leases.values(), key=ledger_order))
    announced = {subject: (batch, commitment) for batch in chain
                 for subject, commitment in batch.announced}  # fmt: skip
    for wire in listings["Reservation"].items:
        reservation = reservation_from_wire(wire)
        if reservation.subject in announced:
            world.fold_reservation(_announced(reservation, *announced[reservation.subject]))
    for wire in listings["Pod"].items:
        world.put_pod(pod_from_wire(wire, gpu_resource=policy.gpu_resource))
    _restore_facts(world, chain)
    _restore_lowered(world, chain)
    _restore_overdrafts(world, chain)
    found.unmaterialised = [batch for batch in chain if batch.seq > sealed.materialised]
    found.versions = {kind: listings[kind].version for kind in WATCHED}
    found.listed = {kind: listings[kind].items for kind in WATCHED}
    return found


def fold_leases(world: World, leases: Iterable[Lease]) -> None:
    """All leases, in ledger order."""
    # A million records that all stay: looking for garbage among them again and again is half the
    # time of a restart.
    was_on = gc.isenabled()
    gc.disable()
    try:
        for lease in leases:
            (world.fold_open if lease.is_open else world.fold_closed_lease)(lease)
    finally:
        if was_on:
            gc.enable()


def _announced(reservation: Reservation, batch: Batch, commitment: str) -> Reservation:
    """Its first status may not have been written: what the ledger says of it comes from there."""
    return replace(reservation, batch=batch.seq, announced=batch.instant, commitment=commitment)


async def _list(store: Store, clock: Clock, kind: str) -> Listing:
    return await until_answered(clock, lambda: store.list(kind))


async def _chain(store: Store, clock: Clock, seq: int, digest: str) -> list[Batch]:
    """The committed batches in order: those that the head reaches, not the orphans."""
    listing = await _list(store, clock, "LedgerBatch")
    by_digest: dict[str, tuple[int, Wire]] = {}
    for wire in listing.items:
        spec = wire["spec"]
        assert isinstance(spec, dict)
        by_digest[str(spec["digest"])] = (int(spec["seq"]), spec)
    lines: dict[int, list[Wire]] = {}
    for number, spec in by_digest.values():
        if number <= seq:
            lines.setdefault(number, []).append(spec)
    return _follow(lines, seq, digest)


def _follow(lines: dict[int, list[Wire]], seq: int, digest: str) -> list[Batch]:
    """Walk back from the head: a line is the chain's if it leads to the digest after it."""
    chain: list[Batch] = []
    wanted = digest
    for number in range(seq, 0, -1):
        befores = [str(each["digest"]) for each in lines.get(number - 1, [])] or [GENESIS]
        for spec in lines.get(number, []):
            batch = spec["batch"]
            encoded = canonical(batch)
            before = next((d for d in befores if next_digest(d, encoded) == wanted), None)
            if str(spec["digest"]) == wanted and before is not None:
                assert isinstance(batch, dict)
                chain.append(batch_from_wire(batch))
                wanted = before
                break
        else:
            raise msgspec.ValidationError(f"the ledger has no batch {number} that its head names")
    return chain[::-1]


def _leases(items: list[Wire], chain: list[Batch], materialised: int) -> dict[str, Lease]:
    """Lease objects, and on top of them what committed batches say that objects do not yet."""
    leases = {lease.name: lease for lease in map(lease_from_wire, items)}
    instants = {batch.seq: batch.instant for batch in chain}
    for batch in chain:
        if batch.seq <= materialised:
            continue
        for name, reason, deadline in batch.ending:
            ending = Ending(
                reason=reason, deadline=deadline, batch=batch.seq, at=instants[batch.seq]
            )
            leases[name] = replace(leases[name], ending=ending)
        closed = []
        for closing in batch.closed:
            lease = replace(
                leases[closing.lease],
                end=closing.end,
                closure=closing.reason,
                cause=closing.cause,
                close_batch=batch.seq,
            )
            leases[lease.name] = lease
            closed.append(lease)
        for lease in batch.opened:
            leases[lease.name] = replace(
                leases.get(lease.name, lease), pod=_pod_name(lease, closed)
            )
    return leases


def _pod_name(lease: Lease, closed: list[Lease]) -> str:
    """A refinanced lease keeps its pod; any other names its own."""
    if lease.role is Role.SPARE:
        return ""
    if lease.reason is not Opened.REFINANCE:
        return pod_name(lease.run, lease.batch, lease.group, lease.index)
    for old in closed:
        same = (old.uid, old.group, old.index, old.node) == (
            lease.uid, lease.group, lease.index, lease.node
        )  # fmt: skip
        if same and set(lease.slots) <= set(old.slots):
            return old.pod
    raise AssertionError(f"{lease.name} replaces no lease")


def _restore_facts(world: World, chain: list[Batch]) -> None:
    for batch in chain:
        for key, spec in batch.facts_budgets:
            if spec is None:
                world.budget_facts.pop(key, None)
            else:
                world.budget_facts[key] = spec
        for fact in batch.facts_nodes:
            if fact.gone:
                world.node_facts.pop(fact.name, None)
            else:
                world.node_facts[fact.name] = (fact.gpus, fact.flavor, fact.domain)


def _restore_lowered(world: World, chain: list[Batch]) -> None:
    """Caps of GPU-hours as the ledger tells them, one after another, and as they are now."""
    world.lowered = LoweredCaps()
    for batch in chain:
        for key, spec in batch.facts_budgets:
            if spec is not None:
                namespace, _, name = key.partition("/")
                wire = {
                    "metadata": {"namespace": namespace, "name": name},
                    "spec": msgspec.json.decode(spec),
                }
                # What the same batch opens was opened under these caps already.
                world.lowered.note(budget_from_wire(wire), batch=batch.seq - 1)
    for budget in world.budgets.values():
        world.lowered.note(budget, batch=world.head.seq)


def _restore_overdrafts(world: World, chain: list[Batch]) -> None:
    """The newest announcement of each envelope; the first turn drops those that are over."""
    for batch in chain:
        for subject, commitment in batch.announced:
            if subject.count("/") == _ENVELOPE_PARTS - 1:
                world.overdrafts[subject] = Overdraft(
                    subject=subject,
                    since=batch.instant,
                    batch=batch.seq,
                    commitment=commitment,
                )
