"""A Reservation that is due, or is thought through for the instant it is due: place and victims.

Choose the place before the victims: for each group the domain where the loss is least (GPUs by
lottery, GPUs by shrinking, spares), then by name; groups one after the other in index order. The
scope is those domains. Nobody is cut for want of money, nor for a place that is promised to one
ahead.
"""

from dataclasses import dataclass, field, replace

from tests.model.admit import Plan, admit, borrowed_by, own_domains, place_of, put_in
from tests.model.cuts import (
    Cut,
    Scope,
    Seed,
    draw,
    drop_spares,
    give_back,
    shrink_in_rounds,
    would_do,
)
from tests.model.money import Segment, cover
from tests.model.places import Room, may_go, room_for
from tests.model.start import open_plan
from tests.model.view import Claim, View, cost_of_segments, end_of
from tests.model.world import Lease, Run, World

Loss = tuple[int, int, int]


@dataclass
class Case:
    """One run's case: for which instant, on top of what, and what was found."""

    world: World
    run: Run
    groups: list[int]
    claims: list[Claim]
    at: int
    absent: frozenset[int] = frozenset()  # leases that will be gone by then, whoever cuts them
    domains: dict[int, str] = field(default_factory=dict)
    bills: dict[tuple[str, str], list[Segment]] = field(default_factory=dict)
    scope: Scope | None = None
    reason: str = ""

    @property
    def until(self) -> int:
        return end_of(self.run, self.at)

    def view(self, gone: frozenset[int] = frozenset()) -> View:
        gone = gone | self.absent
        return View(self.world, self.at, self.claims, gone, resolving=True, cutting=True)

    def room(self, gone: frozenset[int] = frozenset()) -> Room:
        return room_for(self.view(gone), self.run, until=self.until)

    def plan(self, gone: frozenset[int]) -> Plan | None:
        """Where it would be put after the cuts: anywhere in the scope, as it is packed best, if
        somebody pays for that; else each group where it was meant to be."""
        room = self.room(gone)
        room.avoids = [name for unit in self.run.units.values() for name in unit.avoids]
        spots = put_in(room, self.groups, sorted(set(self.domains.values())))
        if spots is None:
            return None
        where = {spot.group: self.world.nodes[spot.node].place for spot in spots}
        places = {place_of(domain) for domain in self.domains.values()}
        bills = self._pay(where) if len(places) > 1 and self.bills else self.bills
        if bills is not None:
            return Plan(spots, bills)
        room = self.room(gone)
        spots = []
        for group in self.groups:
            if not room.holds(self.domains[group], 1):
                return None
            spots += room.put_group(group, self.domains[group])
        return Plan(spots, self.bills)

    def _pay(
        self, where: dict[int, tuple[str, str]]
    ) -> dict[tuple[str, str], list[Segment]] | None:
        """Who pays if groups are elsewhere in the scope than was thought."""
        bills: dict[tuple[str, str], list[Segment]] = {}
        for group in self.groups:
            bill = cover(
                self.view(), self.run, self.run.group_gpus + self.run.spares, where[group],
                until=self.until, taken=[segment for each in bills.values() for segment in each],
                borrowed=borrowed_by(self.world, self.run),
            )  # fmt: skip
            if bill.missing:
                return None
            bills[where[group]] = bills.get(where[group], []) + bill.segments
        return bills

    def scope_in(self, wanted: dict[str, int]) -> Scope:
        """So many groups in each of these domains."""

        def enough(gone: frozenset[int]) -> bool:
            room = self.room(gone)
            return all(room.holds(domain, count) for domain, count in wanted.items())

        def inside(lease: Lease) -> bool:
            node = self.world.nodes[lease.node]
            return node.domain in wanted and node.flavor == self.run.flavor

        return Scope(inside, enough, self.at, self.run.key, self.absent)

    def whole_scope(self) -> Scope:
        """The chosen domains: it is enough if all groups fit, wherever in them."""
        scope = self.scope_in(dict.fromkeys(self.domains.values(), 0))

        def enough(gone: frozenset[int]) -> bool:
            room = self.room(gone)
            rooms = [room.pods_in(d) // room.pods_of_group() for d in set(self.domains.values())]
            if (sum(rooms) if self.run.spread else max(rooms)) < len(self.groups):
                return False
            plan = self.plan(gone - self.absent)
            if plan is None:
                return False
            needed = self._without_innocent(scope, plan)
            return _leaves_room_for_those_ahead(self, plan, gone, needed)

        scope.enough = enough
        return scope

    def _without_innocent(self, scope: Scope, plan: Plan) -> frozenset[int]:
        """Of all that is cut, what makes room where it goes: the rest will be given back."""
        nodes = {spot.node for spot in plan.spots}
        needed = (
            cut.leases
            for cut in scope.cuts
            if not cut.returned and any(self.world.leases[n].node in nodes for n in cut.leases)
        )
        return self.absent.union(*needed)


def think_through(case: Case) -> bool:
    """Whether cutting would make room, and where; fills in domains, bills and structural cuts."""
    if not _choose_domains(case):
        return False
    if not _can_be_made(case):
        case.reason = "InsufficientCapacity"
        return False
    return True


def foresee(case: Case) -> bool:
    """The same for a plan: who is about to start by a Resolution will be one of those that it may
    cut then."""
    if think_through(case):
        return True
    seated = _once_seated(case.world, case.claims, case.run, case.at)
    if seated == case.claims:
        return False
    case.claims = seated
    return think_through(case)


def _once_seated(world: World, claims: list[Claim], run: Run, at: int) -> list[Claim]:
    """What was made for others is theirs until they can be drawn like anybody; so is the money."""

    def is_over(claim: Claim) -> bool:
        holder = world.runs[claim.run]
        until = world.will_be_protected(holder, sorted(claim.nodes), run.key)
        return claim.kind == "hold" and until <= at

    return [replace(claim, nodes={}) if is_over(claim) else claim for claim in claims]


def _choose_domains(case: Case) -> bool:
    room = case.room()
    domains = room.domains()
    case.domains, case.bills = {}, {}
    if not domains:
        case.reason = "NoSuchFlavor"
        return False
    if not case.run.spread or len(case.groups) == 1:
        return _choose_one(case, domains, room.gpus_of_group())
    taken: dict[str, int] = {}
    losses: dict[str, Loss] = {}
    for group in case.groups:
        best: tuple[Loss, str] | None = None
        found: list[Segment] = []
        reason = ""
        for domain in domains:
            bill = _bill(case, room.gpus_of_group(), place_of(domain))
            if isinstance(bill, str):
                reason = reason or bill
                continue
            loss = _loss(case, domain, taken.get(domain, 0) + 1)
            if loss is None:
                continue
            before = losses.get(domain, (0, 0, 0))
            more = (loss[0] - before[0], loss[1] - before[1], loss[2] - before[2])
            if best is None or (more, domain) < best:
                best, found = (more, domain), bill
        if best is None:
            case.reason = reason or "InsufficientCapacity"
            return False
        domain = best[1]
        case.domains[group] = domain
        taken[domain] = taken.get(domain, 0) + 1
        losses[domain] = _loss(case, domain, taken[domain]) or (0, 0, 0)
        place = place_of(domain)
        case.bills[place] = case.bills.get(place, []) + found
    return True


def _choose_one(case: Case, domains: list[str], group_gpus: int) -> bool:
    """All groups in one domain."""
    best: tuple[Loss, str] | None = None
    paid: list[Segment] = []
    reason = ""
    for domain in domains:
        bill = _bill(case, group_gpus * len(case.groups), place_of(domain))
        if isinstance(bill, str):
            reason = reason or bill
            continue
        loss = _loss(case, domain, len(case.groups))
        if loss is not None and (best is None or (loss, domain) < best):
            best, paid = (loss, domain), bill
    if best is None:
        case.reason = reason or "InsufficientCapacity"
        return False
    case.bills = {place_of(best[1]): paid}
    case.domains = dict.fromkeys(case.groups, best[1])
    return True


def _bill(case: Case, gpus: int, place: tuple[str, str]) -> list[Segment] | str:
    """Who pays there, without what the victims would free; or why nobody does."""
    taken = [segment for bill in case.bills.values() for segment in bill]
    bill = cover(
        case.view(), case.run, gpus, place,
        until=case.until, taken=taken, borrowed=borrowed_by(case.world, case.run),
    )  # fmt: skip
    return bill.reason if bill.missing else bill.segments


def _loss(case: Case, domain: str, groups: int) -> Loss | None:
    """After structural cuts, without drawing; None: even everything would not do there."""
    if not _may_be_in(case, domain, groups):
        return None
    scope = case.scope_in({domain: groups})
    drop_spares(case.world, scope)
    shrink_in_rounds(case.world, scope)
    spares = sum(cut.gpus for cut in scope.cuts if cut.kind == "spare")
    shrunk = sum(cut.gpus for cut in scope.cuts if cut.kind == "shrink")
    if scope.enough(scope.gone()):
        return (0, shrunk, spares)
    room = case.room(scope.gone())
    missing = groups * room.pods_of_group() - room.pods_in(domain)
    everything = case.scope_in({domain: groups})
    if not would_do(case.world, everything):
        return None
    return (missing * case.run.pod_gpus, shrunk, spares)


def _may_be_in(case: Case, domain: str, groups: int) -> bool:
    """Whether so many groups there leave room for those ahead. Whom they cut there may be elsewhere
    as well, where somebody counts on it."""
    later = [claim for claim in case.claims if claim.kind == "cut"]
    if not later:
        return True
    if not any(domain in claim.pods for claim in later) and case.room().holds(domain, groups):
        return True
    trial = Case(
        case.world, case.run, case.groups[:groups], case.claims, case.at,
        case.absent, dict.fromkeys(case.groups[:groups], domain),
    )  # fmt: skip
    return _can_be_made(trial)


def _leaves_room_for_those_ahead(
    case: Case, plan: Plan, gone: frozenset[int], needed: frozenset[int]
) -> bool:
    """Of those ahead that need cuts later: their room in their intended domains, from their start
    on. Each is put there with all the cuts it may make, on top of those that start before it. Who
    is out of its reach may find none without it, too: that is not its doing. A known start would
    lose what they take because more is free than was `needed`."""
    seat = claim_of(case.world, case.run, plan, case.at, "plan")
    if not _leaves_known_starts(case, seat, needed):
        return False
    every = [
        claim
        for claim in sorted(case.claims, key=lambda each: each.start)
        if claim.kind == "cut" and case.at < claim.end
    ]
    later = [claim for claim in every if claim.start < case.until]
    lost = _without_room(case, later, [seat], gone)
    near = _within_reach(later, _touched(case, seat, gone))
    if lost and _without_room(case, near, [seat], gone):
        return False
    if not lost <= _without_room(case, later, [], case.absent):
        return False
    # Who starts when it has ended may miss what one of those has elsewhere because of it, or whom
    # it has cut: a sweep that lost groups can give up fewer.
    met = {claim.run for claim in later}
    missed = _without_room(case, every, [seat], gone) - met
    return missed <= _without_room(case, every, [], case.absent)


def shelters(world: World, run: Run, plan: Plan, claims: list[Claim]) -> bool:
    """Whether these groups of a sweep would keep others of it from being drawn for somebody ahead:
    at its minimum it is drawn whole, above that only its highest groups are."""
    starting = {spot.group for spot in plan.spots}
    running = {lease.group for lease in world.leases_of(run) if not lease.ending}
    if not run.is_sweep or run.elastic or len(starting | running) * run.group_gpus <= run.least:
        return False
    later = [
        claim
        for claim in sorted(claims, key=lambda each: each.start)
        if claim.kind == "cut" and claim.start < end_of(run, world.now) and world.now < claim.end
    ]
    case = Case(world, run, [], claims, world.now)
    leases, pods, units = len(world.leases), len(world.pods), [run.unit_of(g) for g in starting]
    started = [unit.started for unit in units]
    for unit in units:
        unit.started = world.now
    open_plan(world, run, plan, "Start")
    lost = _without_room(case, later, [], frozenset())
    del world.leases[leases:], world.pods[pods:]
    for unit, before in zip(units, started, strict=True):
        unit.started = before
    return not lost <= _without_room(case, later, [], frozenset())


def _without_room(
    case: Case, claims: list[Claim], seated: list[Claim], gone: frozenset[int]
) -> set[str]:
    """Who of them finds no room, on top of those who sit there and of each other."""
    lost = set()
    for claim in claims:
        before = [c for c in case.claims[: case.claims.index(claim)] if c.kind != "cut"]
        ahead = case.world.runs[claim.run]
        at = max(claim.start, case.world.now)
        before = _once_seated(case.world, before, ahead, at)
        theirs = Case(case.world, ahead, claim.groups, [*before, *seated], at, absent=gone)
        theirs.domains = dict(claim.places)
        if not _can_be_made(theirs):
            lost.add(claim.run)
            continue
        assert theirs.scope is not None
        gone = gone | theirs.scope.gone()
        found = theirs.plan(gone)
        assert found is not None
        seated = [*seated, claim_of(case.world, ahead, found, at, "plan")]
    return lost


def _within_reach(claims: list[Claim], touched: set[str]) -> list[Claim]:
    """Those that count on one of these domains, or on one where somebody is who may have to move
    over for that."""
    for _ in claims:  # each may bring one more within reach
        touched = touched | {d for x in claims if touched & set(x.pods) for d in x.pods}
    return [claim for claim in claims if touched & set(claim.pods)]


def _touched(case: Case, seat: Claim, gone: frozenset[int]) -> set[str]:
    """The domains where it would be, and where those are whom it cuts."""
    world = case.world
    ended = (world.runs[world.leases[number].run] for number in gone - case.absent)
    domains = {world.nodes[name].domain for name in seat.nodes}
    domains.update(domain for run in ended for domain in own_domains(world, run))
    return domains


def _leaves_known_starts(case: Case, seat: Claim, gone: frozenset[int]) -> bool:
    """Who is ahead and will need cuts may have its room elsewhere then: where a start is to be that
    is known, and ahead, too. Such a one must still be possible."""
    world, touched = case.world, _touched(case, seat, gone)
    for index, claim in enumerate(case.claims):
        if claim.kind != "plan" or claim.start < case.at:
            continue
        ahead = case.claims[:index]
        domains = {world.nodes[name].domain for name in claim.nodes if name in world.nodes}
        rooms = {domain for other in ahead if other.kind == "cut" for domain in other.pods}
        if not domains & rooms & touched:
            continue
        then = [
            replace(x, before=[*x.before, seat], gone=gone, was=x, kept={}, under={}) for x in ahead
        ]
        view = View(world, claim.start, [*then, seat], gone, resolving=True)
        if not isinstance(admit(view, world.runs[claim.run], claim.groups), Plan):
            return False
    return True


def _can_be_made(case: Case) -> bool:
    """Whether there is room in its domains after all the cuts that may be made there."""
    case.scope = case.whole_scope()
    return would_do(case.world, case.scope)


def claim_of(world: World, run: Run, plan: Plan, start: int, kind: str) -> Claim:
    """What a plan keeps from those behind it."""
    claim = Claim(run.key, kind, start, end_of(run, start), flavor=run.flavor)
    claim.groups = sorted({spot.group for spot in plan.spots})
    for spot in plan.spots:
        claim.nodes[spot.node] = claim.nodes.get(spot.node, 0) + run.pod_gpus
    cost_of_segments(world, claim, plan.segments(), start)
    return claim


def carry_out(case: Case, seed: Seed) -> list[Cut]:
    """The cuts, after the draws and after giving back; `think_through` said that they will do."""
    assert case.scope is not None
    scope = case.whole_scope()
    drop_spares(case.world, scope)
    shrink_in_rounds(case.world, scope)
    draw(case.world, scope, seed)
    give_back(scope)
    case.scope = scope
    return [cut for cut in scope.cuts if not cut.returned]


def tenures(world: World, run: Run) -> list[int]:
    """When protected tenures end, of those where the run may go."""
    ends = {
        world.protected_until(world.runs[lease.run], run.key)
        for lease in world.open_leases()
        if world.nodes[lease.node].flavor == run.flavor and may_go(world, run, lease.node)
    }
    return sorted(end for end in ends if end > world.now)
