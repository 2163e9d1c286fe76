"""C. Cover: the walk over the envelopes that may pay, and what each of them can give."""

from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from tests.model.calendar import Calendar, end_of
from tests.model.facts import Envelope, Place, Run, Segment, World
from tests.model.story import FOREVER

# Refusals that time alone may end.
PASSING = {
    "WindowNotOpen", "ConcurrencyExhausted", "GPUHoursExhausted", "AggregateCap",
    "LendingCapExhausted", "LendingHoursExhausted", "ReciprocalLoan",
}  # fmt: skip


@dataclass
class Bill:
    """The payers of a number of GPUs, or the reason that some GPUs have none."""

    segments: list[Segment] = field(default_factory=list)
    missing: int = 0
    reason: str = ""
    may_pass: bool = False

    def by(self, relation: str) -> int:
        return sum(gpus for _, gpus, kind in self.segments if kind == relation)


# The family


def parents(world: World, owner: str) -> list[str]:
    """Return the parents in the owner's Budgets, or else its path without the last part."""
    above = owner.rpartition(":")[0]
    default = [above] if above else []
    specs = [spec for spec in world.budgets.values() if spec["owner"] == owner]
    found = {name for spec in specs for name in (spec.get("parents") or default)}
    return sorted(found) if specs else default


def ancestors(world: World, owner: str) -> list[list[str]]:
    """Return the ancestors level by level, nearest first."""
    levels: list[list[str]] = []
    seen, level = {owner}, parents(world, owner)
    while level:
        levels.append(level)
        seen.update(level)
        level = sorted({up for each in level for up in parents(world, each)} - seen)
    return levels


def _others(world: World, owner: str) -> list[str]:
    return sorted({spec["owner"] for spec in world.budgets.values()} - {owner})


def siblings(world: World, owner: str) -> list[str]:
    mine = set(parents(world, owner))
    return [each for each in _others(world, owner) if mine & set(parents(world, each))]


def cousins(world: World, owner: str) -> list[str]:
    """Return the owners that share an ancestor with this one, including its descendants."""

    def tree(name: str) -> set[str]:
        return {name, *(up for level in ancestors(world, name) for up in level)}

    mine = tree(owner)
    return [each for each in _others(world, owner) if mine & tree(each)]


def is_allowed(world: World, run: Run) -> bool:
    """Return whether a Budget of the run's owner is in the run's namespace or lists it."""
    return any(
        spec["owner"] == run.owner
        and (key.split("/")[0] == run.namespace or run.namespace in (spec.get("namespaces") or []))
        for key, spec in world.budgets.items()
    )


def walk(world: World, run: Run, place: Place) -> list[tuple[Envelope, str]]:
    """C1 to C3: return the envelopes to consider in this location, in order, with the relation."""
    order: list[tuple[Envelope, str]] = []

    def step(owners: list[str], relation: str, *, only_shared: bool = False) -> None:
        asked = {envelope.name for envelope, _ in order}
        found = [
            envelope
            for envelope in world.envelopes
            if envelope.owner in owners
            and envelope.flavor == run.flavor
            and envelope.covers(place)
            and envelope.name not in asked
            and (envelope.shares or not only_shared)
        ]
        for envelope in sorted(found, key=lambda e: (e.end, *e.name.split("/"))):
            order.append((envelope, relation))

    step([run.owner], "Owned")
    step(siblings(world, run.owner), "Shared", only_shared=True)
    for level in ancestors(world, run.owner):
        step(level, "Shared", only_shared=True)
    if not run.may_borrow:
        return order
    sponsors = [each for each in run.sponsors if each != run.owner]
    for sponsor in sponsors:
        step([sponsor], "Borrowed")
    above = [ancestors(world, sponsor) for sponsor in sponsors]
    for depth in range(max(map(len, above), default=0)):
        for levels in above:
            step(levels[depth] if depth < len(levels) else [], "Borrowed")
    before = len(order)
    step(cousins(world, run.owner), "Borrowed")
    last = [each for each in order[before:] if each[0].lends and admits(each[0], run.owner)]
    return order[:before] + last


def admits(envelope: Envelope, owner: str) -> bool:
    return any(fnmatchcase(owner, glob) for glob in envelope.lends_to)


# What each can give


def borrowed_by(world: World, run: Run) -> int:
    return sum(x.gpus for x in world.leases_of(run) if x.relation == "Borrowed")


def cover(
    calendar: Calendar,
    gpus: int,
    place: Place,
    *,
    at: int,
    limit: int | None = None,
    until: int | None = None,
    taken: list[Segment] | None = None,
    without: frozenset[str] = frozenset(),
    open_until: int = 0,
    returned: int = 0,
) -> Bill:
    """Return the payers of `gpus` GPUs of the calendar's run in this location from `at` on.

    `limit`: the end of the run's time limit. `until`: until when the run blocks others.
    `taken`: what the same placement uses in other locations. `without`: excluded envelopes.
    `open_until`: windows must be open until then (Q5). `returned`: borrowed GPUs that the run
    gives back.
    """
    world, run = calendar.world, calendar.run
    bill = Bill(missing=gpus)
    held_back: list[tuple[str, bool]] = []
    limit = end_of(run, at) if limit is None else limit
    until = calendar.until(at) if until is None else until
    for envelope, relation in walk(world, run, place):
        if not bill.missing:
            break
        if envelope.name in without:
            continue
        spent = [*(taken or []), *bill.segments]
        most, reason = can_give(calendar, envelope, relation, at, (limit, until), spent, returned)
        if most and envelope.end <= open_until:
            most, reason = 0, "WindowClosed"
        part = min(most, bill.missing)
        if part:
            bill.segments.append((envelope.name, part, relation))
            bill.missing -= part
        if bill.missing:
            held_back.append(
                (reason, reason in PASSING and _may_pass(calendar, envelope, reason, at))
            )
    if bill.missing:
        first = next((each for each in held_back if each[1]), None)
        first = first or (held_back[0] if held_back else ("NoEnvelope", False))
        bill.reason, bill.may_pass = first
    return bill


def _may_pass(calendar: Calendar, envelope: Envelope, reason: str, at: int) -> bool:
    """C7: return whether time alone may help: the money is in use now, or the window will open."""
    if at < envelope.start:
        return True
    names = {envelope.name}
    if reason == "AggregateCap":
        names.update(member for _, _, members in envelope.caps for member in members)
    return any(lease.payer in names for lease in calendar.leases) or any(
        name in names for entry in calendar.entries for name, _, _ in entry.segments
    )


def can_give(
    calendar: Calendar,
    envelope: Envelope,
    relation: str,
    at: int,
    ends: tuple[int, int],
    spent: list[Segment],
    returned: int = 0,
) -> tuple[int, str]:
    """C4: return the least that the envelope's caps leave, and the reason of the first such cap."""
    run, name = calendar.run, envelope.name
    if at < envelope.start:
        return 0, "WindowNotOpen"
    if at >= envelope.end:
        return 0, "WindowClosed"
    is_loan = relation == "Borrowed"
    if is_loan and (refusal := _gate(calendar, envelope)):
        return 0, refusal
    limit, until = ends[0], min(ends[1], envelope.end)
    mine = {n: sum(g for each, g, _ in spent if each == n) for n, _, _ in spent}
    limits = [
        (
            envelope.concurrency - calendar.most_paid({name}, at, until) - mine.get(name, 0),
            "ConcurrencyExhausted",
        )
    ]
    limits += _hour_limits(calendar, envelope, relation, at, limit, spent)
    for _, cap, members in envelope.caps:
        used = calendar.most_paid(members, at, until) + sum(mine.get(m, 0) for m in members)
        limits.append((cap - used, "AggregateCap"))
    loans = [(n, g) for n, g, kind in spent if kind == "Borrowed"]
    if is_loan and envelope.lends_gpus is not None:
        used = calendar.most_paid({name}, at, until, lent=True)
        left = envelope.lends_gpus - used - sum(g for n, g in loans if n == name)
        limits.append((left, "LendingCapExhausted"))
    if is_loan and run.most_borrowed is not None:
        before = borrowed_by(calendar.world, run) - returned
        limits.append((run.most_borrowed - before - sum(g for _, g in loans), "BorrowLimit"))
    return min(((max(0, gpus), reason) for gpus, reason in limits), key=lambda each: each[0])


def _gate(calendar: Calendar, envelope: Envelope) -> str:
    world, run = calendar.world, calendar.run
    if not envelope.lends:
        return "LendingDisabled"
    if not admits(envelope, run.owner):
        return "ACLDenied"
    if world.config["forbidReciprocalLending"]:
        for lease in calendar.leases:
            payer = world.envelope(lease.payer)
            if (
                lease.relation == "Borrowed"
                and world.runs[lease.run].owner == envelope.owner
                and payer is not None
                and payer.owner == run.owner
            ):
                return "ReciprocalLoan"
    return ""


def _hour_limits(
    calendar: Calendar,
    envelope: Envelope,
    relation: str,
    at: int,
    limit: int,
    spent: list[Segment],
) -> list[tuple[int, str]]:
    """C5: return the limits by hours at the start and at each later start of a plan that claims
    these hours, because use without a limit commits more and more."""
    found = []
    caps = [(envelope.hours, False, "GPUHoursExhausted")]
    if relation == "Borrowed":
        caps.append((envelope.lends_hours, True, "LendingHoursExhausted"))
    for cap, lent, reason in caps:
        if cap is None:
            continue
        mine = sum(g for n, g, r in spent if n == envelope.name and (r == "Borrowed" or not lent))
        for each in [at, *calendar.later_starts(envelope, at)]:
            end = limit if limit < FOREVER else each + calendar.world.config["accounting.horizon"]
            cost = max(0, min(end, envelope.end) - at)
            if cost:
                left = cap - calendar.hours_bound(envelope, each, lent=lent) - mine * cost
                found.append((left // cost, reason))
    return found
