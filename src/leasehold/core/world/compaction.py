"""Which closed leases and Resolutions a World can drop, and what it must keep about them.

Called by `shell.archive` once everything up to a batch is archived. No decision and no view of
remaining objects may change by dropping:

- An attempt is dropped whole, once none of its leases is open and all are old enough. A run whose
  object is gone is dropped with all its attempts.
- Attempts with rejected binds stay until another outcome follows: their nodes are tried last (P3).
- A Resolution stays while its beneficiary or a victim exists, and its victims' leases stay with it,
  so that users can see why they were preempted.
- A finished Reservation is dropped once its run is gone.
"""

from collections.abc import Iterable

from leasehold.core.facts import EnvelopeKey, Lease, Record, Uid
from leasehold.core.ledger.chain import Digest
from leasehold.core.ledger.charges import Charges
from leasehold.core.ledger.checkpoint import BatchFacts, Carried, CarriedBook
from leasehold.core.reservations import State
from leasehold.core.resolutions import Resolution
from leasehold.core.units import Instant
from leasehold.core.world.book import Book, Settled, UnitHistory
from leasehold.core.world.world import World

Group = tuple[Uid, int, int]  # (run, unit, attempt); (run, 0, 0) if the run is gone


class Compaction(Record):
    """What is dropped, and which closed leases of archived batches stay."""

    leases: tuple[str, ...]
    resolutions: tuple[str, ...]
    reservations: tuple[str, ...]  # subjects
    kept: frozenset[str]

    @property
    def count(self) -> int:
        return len(self.leases) + len(self.resolutions) + len(self.reservations)


def plan_compaction(world: World, *, upto: int, cutoff: Instant) -> Compaction:
    """Return what the World can drop: closed leases, with their Resolutions and Reservations.

    The leases must be closed in a batch up to `upto`, and have ended by the instant `cutoff`.
    """
    going = _old_groups(world, upto, cutoff)
    leaving = _leaving(world, going, upto)
    kept_victims = {
        name
        for resolution in world.resolutions.values()
        if resolution.name not in leaving
        for name in resolution.victims
    }
    for group in list(going):
        if any(lease.name in kept_victims for lease in going[group]):
            del going[group]
    dropped = {lease.name: None for leases in going.values() for lease in leases}
    kept = frozenset(
        lease.name
        for lease in world.leases.values()
        if lease.closed and lease.closed.batch <= upto and lease.name not in dropped
    )
    return Compaction(
        leases=tuple(dropped),
        resolutions=tuple(leaving),
        reservations=_over(world, leaving, upto, cutoff),
        kept=kept,
    )


def carried_after(
    world: World, plan: Compaction, told: BatchFacts, *, seq: int, digest: Digest, instant: Instant
) -> Carried:
    """Return what the World must keep about everything that `plan` drops.

    `told`: the facts of every batch up to `seq`.
    """
    leases = [world.leases[name] for name in plan.leases]
    return Carried(
        seq=seq,
        digest=digest,
        instant=instant,
        charges=_charges(world.carried.charges, leases),
        books=_books(world, leases),
        told=_pruned(world, plan, told),
        kept=plan.kept,
    )


def forget(world: World, plan: Compaction, carried: Carried) -> None:
    """Drop from the World the leases, Resolutions and Reservations that `plan` names.

    `carried` must have the sums over these leases; so no balance and no outcome changes.
    """
    touched = dict.fromkeys(world.leases[name].uid for name in plan.leases)
    for name in plan.leases:
        del world.leases[name]
    for name in plan.resolutions:
        resolution = world.resolutions.pop(name)
        if resolution.lottery is not None:
            world.resolution_of_seed.pop(resolution.lottery.seed, None)
        world.forget_resolution_of(resolution)
        for victim in resolution.victims:
            world.victims.pop(victim, None)
    for subject in plan.reservations:
        uid = world.reservations.pop(subject).uid
        if world.reservation_of.get(uid) == subject:
            del world.reservation_of[uid]
    for uid in (*touched, *(uid for uid in world.carried.books if uid not in carried.books)):
        book = world.books.get(uid)
        if book is None:
            continue
        book.names = [name for name in book.names if name in world.leases]
        if not book.names and uid not in world.runs:
            _close_book(world, uid)
    world.carried = carried
    world.accounts.carry(carried.charges)


def _old_groups(world: World, upto: int, cutoff: Instant) -> dict[Group, list[Lease]]:
    found: dict[Group, list[Lease]] = {}
    blocked: set[Group] = set()
    for lease in world.leases.values():
        group = _group(world, lease)
        closed = lease.closed
        if closed is None or closed.at > cutoff or closed.batch > upto:
            blocked.add(group)
        else:
            found.setdefault(group, []).append(lease)
    for uid in {group[0] for group in found} & set(world.runs):
        for key, unit in world.books[uid].units.items():
            blocked.update((uid, key, number) for number in _rejected_last(unit))
    return {group: leases for group, leases in found.items() if group not in blocked}


def _group(world: World, lease: Lease) -> Group:
    if lease.uid not in world.runs:
        return lease.uid, 0, 0
    return lease.uid, world.unit_of(lease.uid, lease.group), lease.attempt


def _rejected_last(unit: UnitHistory) -> list[int]:
    """Return the numbers of the latest attempts in a row whose binds were rejected.

    An attempt that is still open is skipped.
    """
    found = []
    for each in reversed(unit.attempts):
        if each.open:
            continue
        if not each.was_rejected:
            break
        found.append(each.number)
    return found


def _leaving(world: World, going: dict[Group, list[Lease]], upto: int) -> dict[str, None]:
    """Return the Resolutions that can be dropped, because their beneficiary and all victims are
    gone.

    A Resolution that stays keeps its victims, which keep the other Resolutions that cut them or
    their gang, so the check repeats until nothing changes.
    """
    leaving = {name: each for name, each in world.resolutions.items() if each.batch <= upto}
    gone = {group[0] for group in going if group[0] not in world.runs}
    while True:
        staying = [each for each in leaving.values() if not _may_leave(world, each, gone)]
        if not staying:
            return dict.fromkeys(leaving)
        for each in staying:
            del leaving[each.name]
            gone -= {world.leases[name].uid for name in each.victims if name in world.leases}


def _may_leave(world: World, resolution: Resolution, gone: set[Uid]) -> bool:
    whom = resolution.beneficiary_uid
    if whom in world.runs or (whom in world.books and world.books[whom].names and whom not in gone):
        return False
    victims = (world.leases.get(name) for name in resolution.victims)
    return all(lease is None or lease.uid in gone for lease in victims)


def _over(world: World, leaving: dict[str, None], upto: int, cutoff: Instant) -> tuple[str, ...]:
    """Return finished Reservations that can be dropped: their runs are gone, and no remaining
    Resolution was made for them."""
    wanted = {each.subject for each in world.resolutions.values() if each.name not in leaving}
    return tuple(
        subject
        for subject, each in world.reservations.items()
        if each.uid not in world.runs
        and each.state in (State.RELEASED, State.CANCELED)
        and each.batch <= upto
        and each.since <= cutoff
        and subject not in wanted
    )


def _charges(known: dict[EnvelopeKey, Charges], leases: list[Lease]) -> dict[EnvelopeKey, Charges]:
    by_payer: dict[EnvelopeKey, list[Lease]] = {}
    for lease in leases:
        by_payer.setdefault(lease.payer, []).append(lease)
    more = {
        payer: known.get(payer, Charges()).with_leases(mine) for payer, mine in by_payer.items()
    }
    return known | more


def _books(world: World, leases: list[Lease]) -> dict[Uid, CarriedBook]:
    """Return what must be kept of the books of existing runs, once these leases are dropped.

    The book of a run that is gone is dropped with its last lease.
    """
    attempts: dict[Uid, set[tuple[int, int]]] = {}
    settled: dict[Uid, Settled] = {}
    for lease in leases:
        assert lease.end is not None, lease.name
        unit = world.unit_of(lease.uid, lease.group)
        attempts.setdefault(lease.uid, set()).add((unit, lease.attempt))
        sums, key = settled.setdefault(lease.uid, {}), (lease.payer, lease.relation)
        sums[key] = sums.get(key, 0) + lease.gpu_ms(lease.end)
    before = world.carried.books
    books = {}
    for uid in dict.fromkeys((*before, *attempts)):
        known = before.get(uid, CarriedBook())
        if uid in world.runs:
            mine = world.books[uid]
            books[uid] = mine.carried(known, attempts.get(uid, set()), settled.get(uid, {}))
        elif uid not in attempts and world.books[uid].names:
            books[uid] = known  # its last leases are not old enough yet
    return books


def _pruned(world: World, plan: Compaction, told: BatchFacts) -> BatchFacts:
    """Return `told` with announcements of remaining reservations and digests of remaining
    Resolutions only."""
    pruned = told.copied()
    pruned.lowered.keep_only_of(world.lowered)  # leases can no longer show what it forgave
    pruned.lowerings.clear()
    over = frozenset(plan.reservations)
    pruned.reservations = {
        subject: said
        for subject, said in told.reservations.items()
        if subject in world.reservations and subject not in over
    }
    going = frozenset(plan.resolutions)
    pruned.resolutions = {
        name: digest
        for name, digest in told.resolutions.items()
        if name in world.resolutions and name not in going
    }
    return pruned


def _close_book(world: World, uid: Uid) -> None:
    """Drop the book of a run, or keep an empty one if a retained Resolution names it as
    beneficiary."""
    named = _batches_for(world.resolutions.values(), uid)
    if named:
        world.books[uid] = Book()
        world.books[uid].resolved_in = named
    else:
        del world.books[uid]


def _batches_for(resolutions: Iterable[Resolution], uid: Uid) -> list[int]:
    return [each.batch for each in resolutions if each.beneficiary_uid == uid]
