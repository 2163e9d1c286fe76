"""Overdrafts: an envelope (or its lending, or an aggregate) pays for more than it may.

Another payer is sought at once, last-bound leases first, whole leases, and nobody notices. What
finds none gets the grace, then spares, shrinks and the lottery within what that envelope pays for.
"""

from collections.abc import Callable
from dataclasses import dataclass

from tests.model.admit import borrowed_by
from tests.model.cuts import Scope, draw, drop_spares, give_back, shrink_in_rounds, would_do
from tests.model.life import apply_cuts, close
from tests.model.money import Segment, cover
from tests.model.story import FOREVER
from tests.model.view import Claim, View
from tests.model.world import Envelope, Lease, World


@dataclass
class Debt:
    """What is over: of which leases, and whether it still is without some of them."""

    subject: str
    leases: list[Lease]
    is_over: Callable[[frozenset[int]], bool]


def staying(world: World) -> list[Lease]:
    """Leases that go already are no debt any more."""
    return [lease for lease in world.open_leases() if not lease.ending]


def debts(world: World) -> list[Debt]:
    """Every overdraft there is, by subject; of one subject what bars a lease outright first."""
    found: list[Debt] = []
    for name in sorted({lease.payer for lease in staying(world)}):
        envelope = world.envelope(name)
        mine = [lease for lease in staying(world) if lease.payer == name]
        if envelope is None or not envelope.is_open(world.now):
            found.append(_all_of(name, mine))
            continue
        misplaced = [lease for lease in mine if not _fits(world, envelope, lease)]
        if misplaced:
            found.append(_all_of(name, misplaced))
        found += _over_concurrency(name, mine, envelope.concurrency)
        lent = [lease for lease in mine if lease.relation == "Borrowed"]
        if envelope.lends_gpus is not None:
            found += _over_concurrency(name, lent, envelope.lends_gpus)
        found += _over_hours(world, envelope, mine, lent=False)
        found += _over_hours(world, envelope, lent, lent=True)
    for subject, cap, members in sorted(_aggregates(world)):
        mine = [lease for lease in staying(world) if lease.payer in members]
        found += _over_concurrency(subject, mine, cap)
    return sorted(found, key=lambda debt: debt.subject)


def _aggregates(world: World) -> list[tuple[str, int, tuple[str, ...]]]:
    found = {
        (subject, cap, tuple(sorted(members)))
        for envelope in world.envelopes()
        for subject, cap, members in envelope.caps
    }
    return sorted(found)


def _all_of(subject: str, leases: list[Lease]) -> Debt:
    def is_over(gone: frozenset[int]) -> bool:
        return any(lease.number not in gone for lease in leases)

    return Debt(subject, leases, is_over)


def _fits(world: World, envelope: Envelope, lease: Lease) -> bool:
    node = world.nodes[lease.node]
    return envelope.covers(node.place) and envelope.flavor == node.flavor


def _over_concurrency(subject: str, leases: list[Lease], cap: int) -> list[Debt]:
    def is_over(gone: frozenset[int]) -> bool:
        return sum(x.gpus for x in leases if x.number not in gone) > cap

    return [Debt(subject, leases, is_over)] if is_over(frozenset()) else []


# GPU-hours


def paid_ahead(world: World, envelope: Envelope, *, lent: bool, gone: frozenset[int]) -> int:
    """What was used, and what limited leases may still use."""
    view = View(world, world.now, [])
    total = 0
    for lease in world.leases:
        if lease.payer != envelope.name or (lent and lease.relation != "Borrowed"):
            continue
        total += view.used_by(lease, envelope, world.now)
        if lease.number not in gone and world.limit_of(lease) is not None:
            total += view.committed_by(lease, envelope, world.now)
    return total


def _over_hours(world: World, envelope: Envelope, leases: list[Lease], *, lent: bool) -> list[Debt]:
    """Exhausted: what has no limit is the overdraft. What has one was paid for ahead, and is over
    only if the cap was lowered under it."""
    cap = envelope.lends_hours if lent else envelope.hours
    if cap is None:
        return []
    found = []
    key = f"{envelope.name}/lent" if lent else envelope.name
    bound = paid_ahead(world, envelope, lent=lent, gone=frozenset())
    if bound >= cap:
        unlimited = [lease for lease in leases if world.limit_of(lease) is None]
        if unlimited:
            found.append(_all_of(envelope.name, unlimited))
    if bound <= cap:
        world.lowered.pop(key, None)
    elif key in world.lowered:
        limited = [lease for lease in leases if world.limit_of(lease) is not None]

        def is_over(gone: frozenset[int]) -> bool:
            return paid_ahead(world, envelope, lent=lent, gone=gone) > cap and any(
                lease.number not in gone for lease in limited
            )

        if limited:
            found.append(Debt(envelope.name, limited, is_over))
    return found


def note_lowered(world: World, before: list[Envelope]) -> None:
    """After an edit: whose cap of hours was lowered below what was paid ahead."""
    old = {envelope.name: envelope for envelope in before}
    for envelope in world.envelopes():
        was = old.get(envelope.name)
        for lent in (False, True):
            cap = envelope.lends_hours if lent else envelope.hours
            old_cap = None if was is None else (was.lends_hours if lent else was.hours)
            if cap is None or (was is not None and old_cap is not None and old_cap <= cap):
                continue
            if paid_ahead(world, envelope, lent=lent, gone=frozenset()) > cap:
                world.lowered[f"{envelope.name}/lent" if lent else envelope.name] = cap


def next_exhaustion(world: World) -> int:
    """When hours will be exhausted by leases without a limit, as things stand."""
    first = FOREVER
    for envelope in world.envelopes():
        for lent in (False, True):
            cap = envelope.lends_hours if lent else envelope.hours
            if cap is None:
                continue
            rate = sum(
                lease.gpus
                for lease in world.open_leases()
                if lease.payer == envelope.name
                and world.limit_of(lease) is None
                and (not lent or lease.relation == "Borrowed")
            )
            left = cap - paid_ahead(world, envelope, lent=lent, gone=frozenset())
            if rate and left > 0:
                first = min(first, world.now + -(-left // rate))
    return first


# Settling


def settle_debts(world: World) -> bool:
    """Refinance what can be; cut what has had its grace. True if anything was done."""
    for debt in debts(world):
        if refinance(world, debt, world.claims):
            return True
    owing = {debt.subject for debt in debts(world)}
    world.debts = {subject: since for subject, since in world.debts.items() if subject in owing}
    for subject in sorted(owing):
        since = world.debts.setdefault(subject, world.now)
        if world.now >= since + world.config["overdraft.grace"] and _cut(world, subject):
            return True
    return False


def last_bound_first(leases: list[Lease]) -> list[Lease]:
    """Then by run, group and pod descending, spares after pods."""
    return sorted(
        leases,
        key=lambda x: (x.start, x.role != "Spare", *x.run.split("/"), x.group, x.pod, x.slots),
        reverse=True,
    )


def refinance(world: World, debt: Debt, claims: list[Claim]) -> bool:
    """Whole leases, until it is not over any more. Money that nobody counts on first; but nobody
    who runs is cut for a mere plan."""
    moved: set[int] = set()
    held = [claim for claim in claims if claim.kind == "hold"]
    for lease in last_bound_first(debt.leases):
        if not debt.is_over(frozenset(moved)):
            break
        segments = other_payers(world, lease, claims) or other_payers(world, lease, held)
        if segments is not None:
            move(world, lease, segments)
            moved.add(lease.number)
    return bool(moved)


def other_payers(
    world: World, lease: Lease, claims: list[Claim], without: frozenset[str] = frozenset()
) -> list[Segment] | None:
    """Who else pays for these very slots; never the same envelope again."""
    run = world.runs[lease.run]
    limit = world.limit_of(lease)
    loans = borrowed_by(world, run) - (lease.gpus if lease.relation == "Borrowed" else 0)
    view = View(world, world.now, claims)
    bill = cover(
        view, run, lease.gpus, world.nodes[lease.node].place,
        until=FOREVER if limit is None else limit,
        borrowed=loans, without=without | {lease.payer},
    )  # fmt: skip
    return None if bill.missing else bill.segments


def move(world: World, lease: Lease, segments: list[Segment]) -> None:
    close(world, lease, "Refinanced")
    slots = lease.slots
    for payer, gpus, relation in segments:
        part, slots = slots[:gpus], slots[gpus:]
        world.leases.append(
            Lease(
                len(world.leases),
                lease.run,
                lease.group,
                lease.pod,
                lease.attempt,
                lease.role,
                lease.node,
                part,
                payer,
                relation,
                world.now,
                "Refinance",
            )
        )


def _cut(world: World, subject: str) -> bool:
    """One way of being overdrawn after the other: spares, shrinks, lottery; what can be cut is,
    even if it is not enough yet."""
    return any(debt.subject == subject and _cut_for(world, debt) for debt in debts(world))


def _cut_for(world: World, debt: Debt) -> bool:
    def enough(gone: frozenset[int]) -> bool:
        return not debt.is_over(gone)

    scope = Scope(lambda lease: lease in debt.leases, enough, world.now)
    if any(world.runs[lease.run].protected > world.now for lease in debt.leases):
        rehearsed = Scope(lambda lease: lease in debt.leases, enough, world.now)
        if not would_do(world, rehearsed):
            return False  # until they may be drawn, nobody is cut in their stead
    drop_spares(world, scope)
    shrink_in_rounds(world, scope)
    draw(world, scope, lambda: world.seeds("Overdraft", debt.subject, world.now))
    if enough(scope.gone()):
        give_back(scope)
    cuts = [cut for cut in scope.cuts if not cut.returned]
    apply_cuts(world, cuts, "Overdrawn")
    if cuts:
        world.note(f"overdraft of {debt.subject}: {[(c.kind, c.run, c.group) for c in cuts]}")
    return bool(cuts)
