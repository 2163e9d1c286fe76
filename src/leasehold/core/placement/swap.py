"""swap: let spares take over the pods of a failed or drained node (S2).

Decides for all lost pods of one group together. If not every pod finds spare slots in the group's
domain, none is swapped. The caller then gives up the group or the gang; a drain looks for another
way.
"""

from leasehold.core.facts import Cause, Closed, Lease, Node, Record, Role, Uid
from leasehold.core.world.world import World


class Takeover(Record):
    """One lost pod, and the spare leases whose slots it gets."""

    failed: tuple[Lease, ...]  # the pod's leases, one per payer
    spares: tuple[Lease, ...]
    node: str
    slots: tuple[int, ...]


def swap(world: World, lost: list[list[Lease]], *, lasting: bool = False) -> list[Takeover] | None:
    """Return a takeover for every lost pod of one group, or None if there are too few spares.

    `lost`: the leases of each pod. `lasting`: do not use spares on nodes under drain.
    """
    assert lost
    first = lost[0][0]
    spares = [
        spare
        for spare in _spares(world, first.uid, first.group)
        if not (lasting and spare.node in world.fleet.draining)
    ]
    found: list[Takeover] = []
    for pod in lost:
        needed = sum(lease.gpus for lease in pod)
        takeover = _match(pod, needed, spares)
        if takeover is None:
            return None
        for spare in takeover.spares:
            spares.remove(spare)
        found.append(takeover)
    return found


def vacancies(world: World, uid: Uid, unit: int) -> dict[int, list[list[Lease]]]:
    """Return the pods of a live unit that were lost and not replaced.

    The result is group -> pods, and each pod is a list of its last leases.
    """
    book = world.books[uid]
    attempt = book.units[unit].last
    assert attempt is not None
    last: dict[tuple[int, int], str] = {}
    by_pod: dict[str, list[Lease]] = {}
    for name in book.names:
        lease = world.leases[name]
        if (
            lease.attempt == attempt.number
            and lease.role is not Role.SPARE
            and world.unit_of(uid, lease.group) == unit
        ):
            last[(lease.group, lease.index)] = lease.pod
            by_pod.setdefault(lease.pod, []).append(lease)
    found: dict[int, list[list[Lease]]] = {}
    for (group, _), pod in sorted(last.items()):
        lost = [lease for lease in by_pod[pod] if _was_lost(lease)]
        if lost and not any(lease.is_open for lease in by_pod[pod]):
            found.setdefault(group, []).append(lost)
    return found


def _was_lost(lease: Lease) -> bool:
    """Return whether the lease ended although its pod should have gone on, so that a place is
    vacant.

    A lease that was already ending leaves no vacancy, unless it ended because its pod moves to a
    spare.
    """
    closed = lease.closed
    if closed is None:
        return False
    if closed.why.reason is Closed.SWAP:
        return True
    if lease.ending is not None:
        return False
    return closed.why.reason is Closed.NODE_FAILURE or closed.cause is Cause.DELETED


def moving(world: World, uid: Uid, group: int) -> list[list[Lease]]:
    """Return the pods of a group that are moving from a draining node to a spare, each as a list
    of its leases."""
    found: dict[str, list[Lease]] = {}
    for name in sorted(world.moving):
        lease = world.leases[name]
        if (lease.uid, lease.group) == (uid, group):
            found.setdefault(lease.pod, []).append(lease)
    return list(found.values())


def awaits_takeover(world: World, spare: Lease) -> bool:
    """Return whether a pod of the spare's group waits for a spare: a lost pod, or one that is
    leaving a draining node."""
    assert spare.role is Role.SPARE, spare.name
    if world.moving and moving(world, spare.uid, spare.group):
        return True
    unit = world.unit_of(spare.uid, spare.group)
    book = world.books.get(spare.uid)
    # a unit that exists only in a what-if has no entry
    known = None if book is None else book.units.get(unit)
    attempt = None if known is None else known.last
    if attempt is None or attempt.why is None:
        return False  # nothing of this attempt has ended yet
    return spare.group in vacancies(world, spare.uid, unit)


def _spares(world: World, uid: str, group: int) -> list[Lease]:
    """Return the group's spares on ready nodes, by index."""
    leases = (world.leases[name] for name in world.open_by_run.get(uid, ()))
    usable = [
        lease
        for lease in leases
        if lease.role is Role.SPARE
        and lease.group == group
        and lease.ending is None
        and (state := world.fleet.nodes.get(lease.node)) is not None
        and _can_take_over(state.node)
    ]
    return sorted(usable, key=lambda lease: (lease.index, lease.slots))


def _can_take_over(node: Node) -> bool:
    """Return whether a lost pod can continue on this node.

    A cordoned node will do: the run already has its slots.
    """
    return node.ready and not node.fenced


def _match(pod: list[Lease], needed: int, spares: list[Lease]) -> Takeover | None:
    """Return the first spare with exactly as many slots as the pod needs, or None."""
    by_place: dict[tuple[int, str], list[Lease]] = {}
    for spare in spares:
        by_place.setdefault((spare.index, spare.node), []).append(spare)
    for (_, node), leases in by_place.items():
        slots = tuple(sorted(slot for lease in leases for slot in lease.slots))
        if len(slots) == needed:
            return Takeover(failed=tuple(pod), spares=tuple(leases), node=node, slots=slots)
    return None
