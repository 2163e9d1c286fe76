"""cover: who pays. The family, the order of the walk, and what each envelope can give.

In one location (region, cluster) the walk is: the owner's own envelopes; the siblings'; the
ancestors', nearest first; the sponsors the run names, in its order; their ancestors, nearest
first; cousins whose lending policy admits the owner. Within one step, what expires first.
"""

from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from tests.model.view import View
from tests.model.world import Envelope, Run, World

Segment = tuple[str, int, str]  # envelope, GPUs, relation

# Reasons that go away without anybody doing anything, if anything does.
WAITABLE = {
    "WindowNotOpen", "ConcurrencyExhausted", "GPUHoursExhausted", "AggregateCap",
    "LendingCapExhausted", "LendingHoursExhausted", "ReciprocalLoan",
}  # fmt: skip


@dataclass
class Bill:
    """The answer of cover: who pays for how many GPUs; or, short, the reason."""

    segments: list[Segment] = field(default_factory=list)
    missing: int = 0
    reason: str = ""
    may_help: bool = False  # time alone
    walk: list[tuple[str, object]] = field(default_factory=list)

    def by(self, relation: str) -> int:
        return sum(gpus for _, gpus, kind in self.segments if kind == relation)


def parents(world: World, owner: str) -> list[str]:
    """As its Budgets say; without one, or without saying, its path less the last part."""
    above = owner.rpartition(":")[0]
    default = [above] if above else []
    specs = [spec for spec in world.budgets.values() if spec["owner"] == owner]
    found = {name for spec in specs for name in (spec.get("parents") or default)}
    return sorted(found) if specs else default


def ancestors(world: World, owner: str) -> list[list[str]]:
    """Level by level, nearest first."""
    if owner not in world.levels:
        levels, seen, level = [], {owner}, parents(world, owner)
        while level:
            levels.append(level)
            seen.update(level)
            level = sorted({up for each in level for up in parents(world, each)} - seen)
        world.levels[owner] = levels
    return world.levels[owner]


def owners(world: World) -> list[str]:
    return sorted({spec["owner"] for spec in world.budgets.values()})


def siblings(world: World, owner: str) -> list[str]:
    mine: set[str] = set(*ancestors(world, owner)[:1])
    return [
        other
        for other in owners(world)
        if other != owner and mine & set(*ancestors(world, other)[:1])
    ]


def is_allowed(world: World, run: Run) -> bool:
    """A Budget of that owner lies in the run's namespace or lists it."""
    return any(
        spec["owner"] == run.owner
        and (key.split("/")[0] == run.namespace or run.namespace in (spec.get("namespaces") or []))
        for key, spec in world.budgets.items()
    )


def walk(world: World, run: Run, place: tuple[str, str]) -> list[tuple[Envelope, str]]:
    """Every envelope of the flavor that is asked in this place, in order, with its relation."""
    order: list[tuple[Envelope, str]] = []
    seen: set[str] = set()

    def step(names: list[str], relation: str, *, shared: bool = False) -> None:
        found = [
            envelope
            for envelope in world.envelopes()
            if envelope.owner in names
            and envelope.flavor == run.flavor
            and envelope.covers(place)
            and envelope.name not in seen
            and (envelope.shares or not shared)
        ]
        for envelope in sorted(found, key=lambda e: (e.end, *e.name.split("/"))):
            seen.add(envelope.name)
            order.append((envelope, relation))

    step([run.owner], "Owned")
    step(siblings(world, run.owner), "Shared", shared=True)
    for level in ancestors(world, run.owner):
        step(level, "Shared", shared=True)
    if run.may_borrow:
        sponsors = [each for each in run.sponsors if each != run.owner]  # nobody is its own
        for sponsor in sponsors:
            step([sponsor], "Borrowed")
        above = [ancestors(world, sponsor) for sponsor in sponsors]
        for depth in range(max(map(len, above), default=0)):
            for levels in above:
                step(levels[depth] if depth < len(levels) else [], "Borrowed")
        before = len(order)
        step(cousins(world, run.owner), "Borrowed")
        order[before:] = [
            each for each in order[before:] if each[0].lends and admits(each[0], run.owner)
        ]
    return order


def cousins(world: World, owner: str) -> list[str]:
    """Owners that share an ancestor with this one, its own descendants among them."""

    def line_of(name: str) -> set[str]:
        return {name, *(up for level in ancestors(world, name) for up in level)}

    mine = line_of(owner)
    return [other for other in owners(world) if other != owner and mine & line_of(other)]


def admits(envelope: Envelope, owner: str) -> bool:
    return any(fnmatchcase(owner, glob) for glob in envelope.lends_to)


def cover(
    view: View,
    run: Run,
    gpus: int,
    place: tuple[str, str],
    *,
    until: int,
    taken: list[Segment] | None = None,
    borrowed: int = 0,
    without: frozenset[str] = frozenset(),
) -> Bill:
    """Who pays for so many GPUs in this place from the view's instant to `until`.

    `taken` is what the same plan has asked for already; `borrowed` what the run has borrowed;
    `without` are envelopes that are not to be asked.
    """
    bill = Bill(missing=gpus)
    before = list(taken or [])
    held_back: list[tuple[str, bool]] = []
    for envelope, relation in walk(view.world, run, place):
        if envelope.name in without:
            continue
        if not bill.missing:
            break
        spent = before + bill.segments
        most, reason = can_give(view, run, envelope, relation, until, spent, borrowed)
        part = min(most, bill.missing)
        bill.walk.append((envelope.name, part or reason))
        if part:
            bill.segments.append((envelope.name, part, relation))
            bill.missing -= part
        if bill.missing:
            held_back.append((reason, reason in WAITABLE and _may_help(view, envelope, reason)))
    if bill.missing:
        first = next((each for each in held_back if each[1]), None)
        first = first or (held_back[0] if held_back else ("NoEnvelope", False))
        bill.reason, bill.may_help = first
    return bill


def _may_help(view: View, envelope: Envelope, reason: str) -> bool:
    """Time alone: leases or planned runs that it pays for will end, or its window will open. Of an
    aggregate's cap those of all its members."""
    if view.at < envelope.start:
        return True
    names = {envelope.name}
    if reason == "AggregateCap":
        names.update(member for _, _, members in envelope.caps for member in members)
    return any(lease.payer in names for lease in view.world.open_leases()) or any(
        not names.isdisjoint(claim.money) for claim in view.claims
    )


def can_give(
    view: View,
    run: Run,
    envelope: Envelope,
    relation: str,
    until: int,
    spent: list[Segment],
    borrowed: int,
) -> tuple[int, str]:
    """The least of what its caps leave, and which of them it is."""
    if view.at < envelope.start:
        return 0, "WindowNotOpen"
    if view.at >= envelope.end:
        return 0, "WindowClosed"
    mine = dict.fromkeys((envelope.name, *(m for c in envelope.caps for m in c[2])), 0)
    for name, gpus, _ in spent:
        if name in mine:
            mine[name] += gpus
    limits: list[tuple[int, str]] = []  # of equal ones the first is told
    name = envelope.name
    used = view.most_paid({name}, until) + mine[name]
    limits.append((envelope.concurrency - used, "ConcurrencyExhausted"))
    if relation == "Borrowed":
        refusal = _gate(view, run, envelope)
        if refusal:
            return 0, refusal
    limits += _hour_limits(view, envelope, relation, until, spent)
    for _, cap, members in envelope.caps:
        used = view.most_paid(members, until) + sum(mine[member] for member in members)
        limits.append((cap - used, "AggregateCap"))
    if relation == "Borrowed" and envelope.lends_gpus is not None:
        used = view.most_paid({name}, until, lent=True)
        used += sum(g for n, g, r in spent if n == name and r == "Borrowed")
        limits.append((envelope.lends_gpus - used, "LendingCapExhausted"))
    if relation == "Borrowed" and run.most_borrowed is not None:
        loan = borrowed + sum(gpus for _, gpus, kind in spent if kind == "Borrowed")
        limits.append((run.most_borrowed - loan, "BorrowLimit"))
    limits = [(max(0, gpus), reason) for gpus, reason in limits]
    return min(limits, key=lambda each: each[0])


def _gate(view: View, run: Run, envelope: Envelope) -> str:
    if not envelope.lends:
        return "LendingDisabled"
    if not admits(envelope, run.owner):
        return "ACLDenied"
    if view.world.config["forbidReciprocalLending"]:
        for lease in view.alive:
            payer = view.world.envelope(lease.payer)
            if (
                lease.relation == "Borrowed"
                and view.world.runs[lease.run].owner == envelope.owner
                and payer is not None
                and payer.owner == run.owner
            ):
                return "ReciprocalLoan"
    return ""


def _cost(view: View, envelope: Envelope, until: int, at: int) -> int:
    """GPU-time that one GPU commits from the view's instant on, as seen at another: to the limit,
    or over the horizon from then on, within the window."""
    horizon = at + view.world.config["accounting.horizon"]
    end = until if until < (1 << 61) else horizon
    return max(0, min(end, envelope.end) - view.at)


def _hour_limits(
    view: View, envelope: Envelope, relation: str, until: int, spent: list[Segment]
) -> list[tuple[int, str]]:
    """What is left for it now, and when each planned start comes that counts on these hours:
    whatever has no limit commits more and more."""
    limits = []
    name = envelope.name
    if envelope.hours is not None:
        mine = sum(gpus for n, gpus, _ in spent if n == name)
        starts = [claim.start for claim in view.claims if name in claim.hours]
        for at in [view.at, *(start for start in starts if start > view.at)]:
            left = envelope.hours - view.hours_bound(envelope, at)
            limits.append((left, mine, _cost(view, envelope, until, at), "GPUHoursExhausted"))
    if relation == "Borrowed" and envelope.lends_hours is not None:
        mine = sum(g for n, g, r in spent if n == name and r == "Borrowed")
        starts = [claim.start for claim in view.claims if name in claim.lent_hours]
        for at in [view.at, *(start for start in starts if start > view.at)]:
            left = envelope.lends_hours - view.hours_bound(envelope, at, lent=True)
            limits.append((left, mine, _cost(view, envelope, until, at), "LendingHoursExhausted"))
    return [((left - mine * cost) // cost, why) for left, mine, cost, why in limits if cost]
