"""R. Resolve: the site of a start by cuts, and the victims.

The same cuts serve a waiting run (scope: domains of a flavor) and an overdraft (scope: the leases
that one envelope pays for). The two differ in the leases of the scope and in what is enough.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from tests.model.calendar import Calendar, Entry
from tests.model.facts import Lease, Place, Placement, Run, Segment, Spot, World
from tests.model.lottery import Bundle, draw
from tests.model.money import cover
from tests.model.packing import (
    is_promised,
    may_go,
    own_domains,
    place_of,
    places_of,
    put_all,
    room_for,
)

Gone = frozenset[int]
Loss = tuple[int, int, int]  # GPUs by lottery, by shrinking, of spares


# Leases that may be cut


def stays(world: World, lease: Lease) -> bool:
    return lease.is_open and not lease.ending


def width(world: World, run: Run, gone: Gone = frozenset()) -> int:
    """Return the GPUs of the run's active and filling leases that stay."""
    return sum(
        lease.gpus
        for lease in world.leases_of(run)
        if lease.role != "Spare" and not lease.ending and lease.number not in gone
    )


def groups_that_stay(world: World, run: Run, gone: Gone = frozenset()) -> list[int]:
    leases = [x for x in world.leases_of(run) if x.role != "Spare" and not x.ending]
    return sorted({lease.group for lease in leases if lease.number not in gone})


def surplus(world: World, run: Run) -> list[int]:
    """Return the groups of an elastic run above its minimum, which may be shrunk: the highest
    indices."""
    if not run.elastic:
        return []
    above = max(0, width(world, run) - run.least) // run.group_gpus
    groups = groups_that_stay(world, run)
    return groups[len(groups) - above :]


def fillers_on(world: World, spare: Lease) -> list[Lease]:
    """Return every lease that ends with this spare; a filler ends whole."""
    found: list[Lease] = []
    for lease in world.open_leases():
        if (
            lease.role == "Borrowed"
            and lease.node == spare.node
            and set(lease.slots) & set(spare.slots)
        ):
            run = world.runs[lease.run]
            found += [x for x in world.leases_of(run, run.unit_of(lease.group)) if x not in found]
    return found


def kind_of_loss(world: World, lease: Lease, run: Run, at: int) -> str:
    """Q5: return the step of R3 by which the lease may be cut for a run that starts at `at`, or an
    empty string."""
    other = world.runs[lease.run]
    if other.key == run.key or lease.end is not None:
        return ""
    if lease.ending:  # the lease counts as gone until its deadline, and as staying afterwards
        return "ending" if lease.deadline > world.now else ""
    if lease.role == "Spare":
        return "" if is_promised(world, lease) else "spare"
    if lease.group in surplus(world, other):
        return "shrink"
    if lease.role == "Borrowed" and any(
        lease in fillers_on(world, spare)
        for spare in world.open_leases()
        if spare.role == "Spare" and spare.node == lease.node and not spare.ending
    ):
        return "spare"
    is_drawn = world.config["resolver.cuts"] == "Lottery"
    return "" if is_drawn and world.protected_until(other) > at else "lottery"


# The site


def find_site(
    world: World,
    run: Run,
    groups: list[int],
    ahead: list[Entry],
    at: int,
    *,
    only: list[str] | None = None,
    returned: Gone = frozenset(),
) -> Placement | None:
    """Q5: return a site: payers as if nothing were cut, and GPUs as if all leases that may be cut
    were gone. `only`: the only allowed domains. `returned`: leases whose money comes back."""
    money = Calendar(world, run, ahead, without=returned)
    open_until = at + world.tenure_of(run)
    ground = _Ground(world, run, ahead, at, only)

    def pay(gpus: int, place: Place, taken: list[Segment]) -> list[Segment] | None:
        bill = cover(money, gpus, place, at=at, taken=taken, open_until=open_until)
        return None if bill.missing else bill.segments

    size = run.pods_per_group + run.spare_pods
    bills = {
        place: segments
        for place in places_of(world, run)
        if (segments := pay(size * run.pod_gpus * len(groups), place, [])) is not None
    }
    for place in sorted(bills, key=lambda p: (*_money_rank(bills[p]), p)):
        spots = ground.put_all(groups, [d for d in ground.domains if place_of(d) == place])
        if spots is not None:
            return Placement(spots, {place: bills[place]})
    if not run.spread or len(groups) == 1:
        return None
    placement = Placement()
    for group in groups:  # over several locations
        paid = {
            place: segments
            for place in places_of(world, run)
            if (segments := pay(size * run.pod_gpus, place, placement.segments())) is not None
        }
        for place in sorted(paid, key=lambda p: (*_money_rank(paid[p]), p)):
            spots = ground.put_all([group], [d for d in ground.domains if place_of(d) == place])
            if spots is not None:
                placement.spots += spots
                placement.bills[place] = placement.bills.get(place, []) + paid[place]
                break
        else:
            return None
    return placement


def _money_rank(segments: list[Segment]) -> tuple[int, int]:
    def by(relation: str) -> int:
        return sum(gpus for _, gpus, kind in segments if kind == relation)

    return by("Borrowed"), by("Shared")


class _Ground:
    """The GPUs of each node for a run if all leases that may be cut were gone, and the loss that
    they cost."""

    def __init__(
        self, world: World, run: Run, ahead: list[Entry], at: int, only: list[str] | None
    ) -> None:
        self.run = run
        kinds = {x.number: kind_of_loss(world, x, run, at) for x in world.open_leases()}
        cuttable = frozenset(number for number, kind in kinds.items() if kind)
        ending = frozenset(number for number, kind in kinds.items() if kind == "ending")
        empty = Calendar(world, run, ahead, without=cuttable)
        now = Calendar(world, run, ahead, without=ending)
        until = empty.until(at)
        nodes = {n: world.nodes[n].domain for n in empty.room(at, until) if may_go(world, run, n)}
        if run.is_sweep and not run.spread and only is None:
            only = own_domains(world, run) or None
        self.nodes = {n: domain for n, domain in nodes.items() if only is None or domain in only}
        self.domains = sorted(set(self.nodes.values()))
        self.room = {n: gpus for n, gpus in empty.room(at, until).items() if n in self.nodes}
        self.free = now.room(at, until)
        self.of_kind = {
            (node, kind): len(
                {
                    slot
                    for lease in world.open_leases()
                    if lease.node == node
                    and kinds[lease.number] == kind
                    and now.ends[lease.number] > at
                    for slot in lease.slots
                }
            )
            for node in self.nodes
            for kind in ("spare", "shrink")
        }
        self.taken = dict.fromkeys(self.nodes, 0)

    def loss(self, node: str, taken: int) -> Loss:
        """Return the loss of taking GPUs of this node: spares first, then shrinking, then the
        lottery."""
        missing = max(0, taken - self.free[node])
        spares = min(missing, self.of_kind[node, "spare"])
        shrunk = min(missing - spares, self.of_kind[node, "shrink"])
        return (missing - spares - shrunk, shrunk, spares)

    def put_all(self, groups: list[int], domains: list[str]) -> list[Spot] | None:
        """R2: place each group in the domain with the least loss; without spread, all in one."""
        before = dict(self.taken)
        sets = [[group] for group in groups] if self.run.spread else [groups]
        spots: list[Spot] = []
        for some in sets:
            found = [(*trial, domain) for domain in domains if (trial := self._try(some, domain))]
            if not found:
                self.taken = before
                return None
            _, chosen, taken, _ = min(found, key=lambda each: (each[0], each[3]))
            spots += chosen
            self.taken = taken
        return spots

    def _try(
        self, groups: list[int], domain: str
    ) -> tuple[Loss, list[Spot], dict[str, int]] | None:
        """Place the groups pod by pod, each on the node with the least loss."""
        size, taken, spots = self.run.pod_gpus, dict(self.taken), []
        total = (0, 0, 0)
        for group in groups:
            for pod in range(self.run.pods_per_group + self.run.spare_pods):
                best: tuple[Loss, str] | None = None
                for node in [n for n, where in self.nodes.items() if where == domain]:
                    if taken[node] + size <= self.room[node]:
                        before, after = (
                            self.loss(node, taken[node]),
                            self.loss(node, taken[node] + size),
                        )
                        more = (after[0] - before[0], after[1] - before[1], after[2] - before[2])
                        best = min(best or (more, node), (more, node))
                if best is None:
                    return None
                more, node = best
                total = (total[0] + more[0], total[1] + more[1], total[2] + more[2])
                taken[node] += size
                is_spare = pod >= self.run.pods_per_group
                index = pod - self.run.pods_per_group if is_spare else pod
                spots.append(Spot(group, "Spare" if is_spare else "Active", index, node))
        return total, spots, taken


# The cuts


@dataclass
class Cut:
    """One victim: a spare, a group of an elastic run, or a bundle of the lottery."""

    kind: str  # spare, shrink, draw
    run: str
    group: int
    leases: list[int]
    returned: bool = False


@dataclass
class Scope:
    """R1: the leases among which victims may be chosen, and when there are enough."""

    world: World
    inside: Callable[[Lease], bool]
    enough: Callable[[Gone], bool]
    protects: bool = False  # protected runs are not drawn
    beneficiary: str = ""
    cuts: list[Cut] = field(default_factory=list)

    def gone(self) -> Gone:
        return frozenset(n for cut in self.cuts if not cut.returned for n in cut.leases)

    def is_enough(self) -> bool:
        return self.enough(self.gone())

    def choosable(self) -> list[Lease]:
        gone = self.gone()
        return [
            lease
            for lease in self.world.open_leases()
            if stays(self.world, lease)
            and lease.number not in gone
            and lease.run != self.beneficiary
            and self.inside(lease)
        ]

    def groups_of(self, run: Run) -> list[int]:
        mine = (x for x in self.choosable() if x.run == run.key and x.role != "Spare")
        return sorted({lease.group for lease in mine})


def cut(scope: Scope, seed: Callable[[], str]) -> list[Cut] | None:
    """R3 to R6: return the victims, or None if cutting everything is not enough."""
    drop_spares(scope)
    shrink(scope)
    if not scope.is_enough() and not scope.enough(scope.gone() | _all_bundles(scope)):
        return None
    by_lot(scope, seed)
    give_back(scope)
    return [each for each in scope.cuts if not each.returned]


def _all_bundles(scope: Scope) -> Gone:
    """Return all leases that can be drawn: the groups in the scope of a sweep that stays above its
    minimum, and otherwise the whole run."""
    world, found = scope.world, set(scope.gone())
    for each in bundles(scope).values():
        for namespace, name, _ in each:
            run = world.runs[f"{namespace}/{name}"]
            groups = scope.groups_of(run)
            above = (width(world, run, scope.gone()) - run.least) // run.group_gpus
            whole = not run.is_sweep or len(groups) > above
            mine = world.leases_of(run)
            found.update(x.number for x in mine if whole or x.group in groups)
    return frozenset(found)


def drop_spares(scope: Scope) -> None:
    """R3 (a): cut spares, newest first."""
    spares = [x for x in scope.choosable() if x.role == "Spare" and not is_promised(scope.world, x)]
    spares.sort(key=lambda x: (x.start, *x.run.split("/"), x.group, x.pod, x.slots), reverse=True)
    for lease in spares:
        if scope.is_enough():
            return
        ended = [lease.number, *(x.number for x in fillers_on(scope.world, lease))]
        scope.cuts.append(Cut("spare", lease.run, lease.group, ended))


def shrink(scope: Scope) -> None:
    """R3 (b): shrink elastic runs by one group per run and round, those with most above their
    minimum first."""
    world = scope.world
    elastic = [run for run in world.runs.values() if run.elastic and run.key != scope.beneficiary]
    while not scope.is_enough():
        above = {run.key: width(world, run, scope.gone()) - run.least for run in elastic}
        order = sorted(
            (run for run in elastic if above[run.key] >= run.group_gpus and scope.groups_of(run)),
            key=lambda run: (-above[run.key], *run.key.split("/")),
        )
        if not order:
            return
        for run in order:
            if scope.is_enough():
                return
            if scope.groups_of(run):
                _take(scope, "shrink", run, max(scope.groups_of(run)))


def _take(scope: Scope, kind: str, run: Run, group: int) -> None:
    """Cut a whole group, wherever its pods are; group -1 is the whole run."""
    gone = scope.gone()
    leases = [
        lease.number
        for lease in scope.world.leases_of(run)
        if group in (-1, lease.group) and lease.number not in gone and not lease.ending
    ]
    scope.cuts.append(Cut(kind, run.key, group, leases))


def bundles(scope: Scope) -> dict[str, list[Bundle]]:
    """R4: return the bundles by owner; they are counted again after each draw."""
    world = scope.world
    found: dict[str, list[Bundle]] = {}
    for run in world.runs.values():
        groups = scope.groups_of(run)
        if not groups or (scope.protects and world.protected_until(run) > world.now):
            continue
        namespace, name = run.key.split("/")
        mine = [(namespace, name, -1)]
        if run.is_sweep and width(world, run, scope.gone()) - run.group_gpus >= run.least:
            mine = [(namespace, name, group) for group in groups]
        found.setdefault(run.owner, []).extend(mine)
    return found


def _owned_last(scope: Scope, found: dict[str, list[Bundle]]) -> dict[str, list[Bundle]]:
    """Q10: leave out bundles that only their owners pay for, as long as there are others."""
    if not scope.beneficiary or not scope.world.config["resolver.ownedLast"]:
        return found
    first = {
        owner: [each for each in mine if _has_other_money(scope, each)]
        for owner, mine in found.items()
    }
    return {owner: mine for owner, mine in first.items() if mine} or found


def _has_other_money(scope: Scope, bundle: Bundle) -> bool:
    namespace, name, group = bundle
    return any(
        lease.relation != "Owned"
        for lease in scope.choosable()
        if lease.run == f"{namespace}/{name}" and group in (-1, lease.group)
    )


def by_lot(scope: Scope, seed: Callable[[], str]) -> None:
    """R3 (c), R5: cut by lottery."""
    drawn, k = "", 0
    while not scope.is_enough():
        choices = _owned_last(scope, bundles(scope))
        if not choices:
            return
        drawn = drawn or seed()
        namespace, name, group = draw(drawn, k, choices)
        k += 2
        _take(scope, "draw", scope.world.runs[f"{namespace}/{name}"], group)


def give_back(scope: Scope) -> None:
    """R6: spare victims in reverse order if the rest is enough.

    A spare or a group is useless to a run that was drawn whole, as is a spare to a group that is
    cut, so those are not returned.
    """
    for each in reversed(scope.cuts):
        is_useless = any(
            other.kind != "spare"
            and other is not each
            and other.run == each.run
            and not other.returned
            and (other.group == -1 or (other.group == each.group and each.kind == "spare"))
            for other in scope.cuts
        )
        if not is_useless:
            each.returned = True
            each.returned = scope.is_enough()


# For a waiting run


def resolve_site(
    world: World,
    run: Run,
    site: Placement,
    ahead: list[Entry],
    seed: Callable[[], str],
    gone_before: Gone = frozenset(),
) -> tuple[list[Cut], Placement] | None:
    """R1 to R6 in the domains of the site: return the victims and the placement without them, or
    None if cutting everything is not enough."""
    domains = {world.nodes[spot.node].domain for spot in site.spots}

    def inside(lease: Lease) -> bool:
        node = world.nodes[lease.node]
        return node.domain in domains and node.flavor == run.flavor

    def place(gone: Gone) -> list[Spot] | None:
        calendar = Calendar(world, run, ahead, without=gone | gone_before, ending_is_gone=True)
        room = room_for(calendar, world.now).only_in(sorted(domains))
        spots: list[Spot] = []
        for location in site.bills:
            groups = sorted({s.group for s in site.spots if world.nodes[s.node].place == location})
            there = [domain for domain in room.domains() if place_of(domain) == location]
            found = put_all(room, groups, there, []) if groups else []
            if found is None:
                return None
            spots += found
        return spots

    scope = Scope(
        world, inside, lambda gone: place(gone) is not None, protects=True, beneficiary=run.key
    )
    cuts = cut(scope, seed)
    spots = place(scope.gone()) if cuts is not None else None
    return None if cuts is None or spots is None else (cuts, Placement(spots, site.bills))
