"""O. Overdrafts: an envelope, its lending or an aggregate pays for more than it may."""

from collections.abc import Callable
from dataclasses import dataclass

from tests.model.calendar import Calendar, Entry, committed, used
from tests.model.facts import Envelope, Lease, Placement, Run, Segment, World
from tests.model.life import apply_cuts, close
from tests.model.money import cover
from tests.model.packing import admit, pay_on_empty_fleet, places_of
from tests.model.resolve import Cut, Gone, Scope, by_lot, cut, drop_spares, give_back, shrink, stays
from tests.model.story import FOREVER


@dataclass
class Debt:
    """An overdraft: the leases concerned, and whether it remains without some of them."""

    subject: str
    leases: list[Lease]
    is_over: Callable[[Gone], bool]


def debts(world: World) -> list[Debt]:
    """O1: return every overdraft, by subject."""
    found: list[Debt] = []
    staying = [lease for lease in world.open_leases() if not lease.ending]
    for name in sorted({lease.payer for lease in staying}):
        envelope = world.envelope(name)
        mine = [lease for lease in staying if lease.payer == name]
        if envelope is None or not envelope.is_open(world.now):
            found.append(_all_of(name, mine))
            continue
        misplaced = [lease for lease in mine if not _may_pay(world, envelope, lease)]
        if misplaced:
            found.append(_all_of(name, misplaced))
        found += _over_gpus(name, mine, envelope.concurrency)
        lent = [lease for lease in mine if lease.relation == "Borrowed"]
        if envelope.lends_gpus is not None:
            found += _over_gpus(name, lent, envelope.lends_gpus)
        found += _over_hours(world, envelope, mine, lent=False)
        found += _over_hours(world, envelope, lent, lent=True)
    caps = {(cap[0], cap[1], tuple(sorted(cap[2]))) for e in world.envelopes for cap in e.caps}
    for subject, most, members in sorted(caps):
        found += _over_gpus(subject, [x for x in staying if x.payer in members], most)
    return sorted(found, key=lambda debt: debt.subject)


def _all_of(subject: str, leases: list[Lease]) -> Debt:
    return Debt(subject, leases, lambda gone: any(x.number not in gone for x in leases))


def _may_pay(world: World, envelope: Envelope, lease: Lease) -> bool:
    node = world.nodes[lease.node]
    return envelope.covers(node.place) and envelope.flavor == node.flavor


def _over_gpus(subject: str, leases: list[Lease], cap: int) -> list[Debt]:
    def is_over(gone: Gone) -> bool:
        return sum(x.gpus for x in leases if x.number not in gone) > cap

    return [Debt(subject, leases, is_over)] if is_over(frozenset()) else []


def paid_ahead(world: World, envelope: Envelope, *, lent: bool, gone: Gone = frozenset()) -> int:
    """Return the GPU-time that was used plus what leases with a limit may still use."""
    total = 0
    for lease in world.leases:
        if lease.payer == envelope.name and (lease.relation == "Borrowed" or not lent):
            end = world.known_end(lease) if lease.end is None else lease.end
            total += used(world, lease, envelope, world.now, end)
            if lease.is_open and lease.number not in gone and world.limit_of(lease) is not None:
                total += committed(world, lease, envelope, world.now)
    return total


def _over_hours(world: World, envelope: Envelope, leases: list[Lease], *, lent: bool) -> list[Debt]:
    """Return the overdraft of hours.

    If the hours are exhausted, it consists of the leases without a limit. O4: leases with a limit
    belong to it only if the cap was lowered after they started.
    """
    cap = envelope.lends_hours if lent else envelope.hours
    if cap is None:
        return []
    found = []
    key = f"{envelope.name}/lent" if lent else envelope.name
    bound = paid_ahead(world, envelope, lent=lent)
    unlimited = [lease for lease in leases if world.limit_of(lease) is None]
    limited = [lease for lease in leases if world.limit_of(lease) is not None]
    if bound >= cap and unlimited:
        found.append(_all_of(envelope.name, unlimited))
    if bound <= cap:
        if world.lowered.get(key) == world.now:
            del world.lowered[key]
    elif key in world.lowered and limited:

        def is_over(gone: Gone) -> bool:
            return paid_ahead(world, envelope, lent=lent, gone=gone) > cap and any(
                lease.number not in gone for lease in limited
            )

        found.append(Debt(envelope.name, limited, is_over))
    return found


def note_lowered(world: World, before: list[Envelope]) -> None:
    """Note after an edit the envelopes whose cap of hours is now below what was paid ahead."""
    old = {envelope.name: envelope for envelope in before}
    for envelope in world.envelopes:
        was = old.get(envelope.name)
        for lent in (False, True):
            cap = envelope.lends_hours if lent else envelope.hours
            old_cap = None if was is None else (was.lends_hours if lent else was.hours)
            if cap is None or (was is not None and old_cap is not None and old_cap <= cap):
                continue
            if paid_ahead(world, envelope, lent=lent) > cap:
                world.lowered[f"{envelope.name}/lent" if lent else envelope.name] = world.now


def next_exhaustion(world: World) -> int:
    """Return when leases without a limit will have used all hours if nothing changes."""
    first = FOREVER
    for envelope in world.envelopes:
        for lent in (False, True):
            cap = envelope.lends_hours if lent else envelope.hours
            rate = sum(
                lease.gpus
                for lease in world.open_leases()
                if lease.payer == envelope.name
                and world.limit_of(lease) is None
                and (lease.relation == "Borrowed" or not lent)
            )
            left = 0 if cap is None else cap - paid_ahead(world, envelope, lent=lent)
            if rate and left > 0:
                first = min(first, world.now + -(-left // rate))
    return first


def settle(world: World, ahead: list[Entry]) -> bool:
    """O2, O3: find other payers, and cut after the grace; return whether anything changed."""
    for debt in debts(world):
        if _refinance(world, debt, ahead):
            return True
    owing = {debt.subject for debt in debts(world)}
    world.debts = {name: world.debts.get(name, world.now) for name in sorted(owing)}
    return any(
        _cut_for(world, debt)
        for debt in debts(world)
        if world.now >= world.debts[debt.subject] + world.config["overdraft.grace"]
    )


def last_bound_first(leases: list[Lease]) -> list[Lease]:
    """Return the leases last bound first; of those that start together, pods before spares."""
    return sorted(
        leases,
        key=lambda x: (x.start, x.role != "Spare", *x.run.split("/"), x.group, x.pod, x.slots),
        reverse=True,
    )


def _refinance(world: World, debt: Debt, ahead: list[Entry]) -> bool:
    """O2: move whole leases to other payers until the overdraft is over; money that a plan claims
    is used last."""
    moved: set[int] = set()
    for lease in last_bound_first(debt.leases):
        if not debt.is_over(frozenset(moved)):
            break
        segments = other_payers(world, lease, ahead) or other_payers(world, lease, [])
        if segments is not None:
            move(world, lease, segments)
            moved.add(lease.number)
    return bool(moved)


def other_payers(
    world: World, lease: Lease, ahead: list[Entry], without: frozenset[str] = frozenset()
) -> list[Segment] | None:
    """Return other payers for the slots of a lease, or None."""
    run = world.runs[lease.run]
    limit = world.limit_of(lease)
    limit = FOREVER if limit is None else limit
    bill = cover(
        Calendar(world, run, ahead), lease.gpus, world.nodes[lease.node].place, at=world.now,
        limit=limit, until=limit, without=without | {lease.payer},
        returned=lease.gpus if lease.relation == "Borrowed" else 0,
    )  # fmt: skip
    return None if bill.missing else bill.segments


def move(world: World, lease: Lease, segments: list[Segment]) -> None:
    close(world, lease, "Refinanced")
    slots = lease.slots
    for payer, gpus, relation in segments:
        part, slots = slots[:gpus], slots[gpus:]
        world.leases.append(
            Lease(
                len(world.leases), lease.run, lease.group, lease.pod, lease.attempt, lease.role,
                lease.node, part, payer, relation, world.now, "Refinance",
            )
        )  # fmt: skip


def _cut_for(world: World, debt: Debt) -> bool:
    """R3 to R6: cut leases of the overdraft, even if all that may be cut is not enough."""
    among = {lease.number for lease in debt.leases}
    scope = Scope(world, lambda lease: lease.number in among, lambda gone: not debt.is_over(gone))
    drop_spares(scope)
    shrink(scope)
    by_lot(scope, lambda: world.seeds("Overdraft", debt.subject, world.now))
    if scope.is_enough():
        give_back(scope)
    cuts = [each for each in scope.cuts if not each.returned]
    apply_cuts(world, cuts, "Overdrawn")
    if cuts:
        world.note(f"overdraft of {debt.subject}: {[(c.kind, c.run, c.group) for c in cuts]}")
    return bool(cuts)


# O5, Q6: an owner's own envelope


def shared_leases(world: World, run: Run) -> list[Lease]:
    """Return the leases of the family in the owner's own envelopes, where the run may go."""
    own = own_envelopes(world, run)
    places = places_of(world, run)
    mine = {e.name for e in own if any(e.covers(place) for place in places)}
    return [
        lease for lease in world.open_leases() if lease.payer in mine and lease.relation == "Shared"
    ]


def own_envelopes(world: World, run: Run) -> list[Envelope]:
    return [e for e in world.envelopes if e.owner == run.owner and e.flavor == run.flavor]


def is_locked_out(world: World, run: Run, groups: list[int], ahead: list[Entry]) -> bool:
    """Q6: return whether the owner's own envelopes would pay without the shared leases in them, but
    do not pay now."""
    others = frozenset(e.name for e in world.envelopes) - {
        e.name for e in own_envelopes(world, run)
    }
    shared = frozenset(lease.number for lease in shared_leases(world, run))

    def is_paid(without: Gone) -> bool:
        calendar = Calendar(world, run, ahead, without=without)
        found = pay_on_empty_fleet(calendar, groups, world.now, others)
        return isinstance(found, Placement)

    return bool(shared) and not is_paid(frozenset()) and is_paid(shared)


@dataclass
class Taken:
    """How an owner gets its envelope back: leases that move to other payers, victims, and the
    placement of the owner's run."""

    moved: dict[int, list[Segment]]
    cuts: list[Cut]
    placement: Placement


def take_back(
    world: World,
    run: Run,
    groups: list[int],
    ahead: list[Entry],
    seed: Callable[[], str],
    enough: Callable[[Gone], Placement | None] | None = None,
) -> Taken | None:
    """O5: move as few shared leases as needed to other payers; if that is not enough, cut others
    until the run has payers and fits. Return None if the run still does not start."""
    shared = last_bound_first([x for x in shared_leases(world, run) if stays(world, x)])
    own = frozenset(e.name for e in own_envelopes(world, run))

    def where(gone: Gone) -> Placement | None:
        if enough is not None:
            return enough(gone)
        calendar = Calendar(world, run, ahead, without=gone, ending_is_gone=True)
        found = admit(calendar, groups, world.now)
        return found if isinstance(found, Placement) else None

    moved: dict[int, list[Segment]] = {}
    count = len(world.leases)
    for lease in shared:
        if where(frozenset()) is not None:
            break
        segments = other_payers(world, lease, ahead, own) or other_payers(world, lease, [], own)
        if segments is not None:  # moved for the time being, so that the next lease sees it
            moved[lease.number] = segments
            move(world, lease, segments)
    stand_ins = {x.number: x for x in world.leases[count:]}
    among = {x.number for x in shared if x.number not in moved}
    scope = Scope(
        world,
        lambda x: x.number in among,
        lambda gone: where(gone) is not None,
        beneficiary=run.key,
    )
    cuts = cut(scope, seed)
    placement = where(scope.gone()) if cuts is not None else None
    was = {
        number: next(n for n, _ in moved.items() if _same_place(world.leases[n], lease))
        for number, lease in stand_ins.items()
    }
    del world.leases[count:]
    for number in moved:
        world.leases[number].end, world.leases[number].closed = None, ""
    if cuts is None or placement is None:
        return None
    for each in cuts:
        each.leases = sorted({was.get(number, number) for number in each.leases})
    ended = {number for each in cuts for number in each.leases}
    return Taken({n: s for n, s in moved.items() if n not in ended}, cuts, placement)


def _same_place(one: Lease, other: Lease) -> bool:
    return one.node == other.node and set(other.slots) <= set(one.slots) and one.run == other.run
