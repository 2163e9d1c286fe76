"""resolve: making room. Spares, then rounds of groups, then the lottery, then giving back.

The same sequence serves a Reservation (scope: domains of a flavor) and an overdraft (scope: what an
envelope pays for); they differ in what lies inside and in when it is enough.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from tests.model.lots import Urn
from tests.model.places import is_promised
from tests.model.world import Lease, Run, World

Inside = Callable[[Lease], bool]
Enough = Callable[[frozenset[int]], bool]
Seed = Callable[[], str]


@dataclass
class Cut:
    """One victim: a spare, a group of an elastic run, or a bundle that was drawn."""

    kind: str  # spare, shrink, draw
    run: str
    group: int
    leases: list[int]
    gpus: int
    returned: bool = False


@dataclass
class Scope:
    """Whom one may choose among, and for whom."""

    inside: Inside
    enough: Enough
    at: int
    beneficiary: str = ""
    absent: frozenset[int] = frozenset()  # leases that are gone before anything is cut
    cuts: list[Cut] = field(default_factory=list)

    def gone(self, cuts: list[Cut] | None = None) -> frozenset[int]:
        cuts = self.cuts if cuts is None else cuts
        ended = (number for cut in cuts if not cut.returned for number in cut.leases)
        return self.absent.union(ended)


def staying(world: World, scope: Scope) -> list[Lease]:
    """Leases that nobody has told to go, and that will not have ended by then."""
    gone = scope.gone()
    return [
        lease
        for lease in world.open_leases()
        if not lease.ending and lease.number not in gone and world.known_end(lease) > scope.at
    ]


def choosable(world: World, scope: Scope) -> list[Lease]:
    """Leases in the scope that are not going already and are not the beneficiary's own."""
    return [
        lease
        for lease in staying(world, scope)
        if lease.run != scope.beneficiary and scope.inside(lease)
    ]


def drop_spares(world: World, scope: Scope) -> None:
    """Newest first; of one instant by (run, group, pod) descending. A filler ends with it."""
    spares = [
        lease
        for lease in choosable(world, scope)
        if lease.role == "Spare" and not is_promised(world, lease)
    ]
    spares.sort(key=lambda x: (x.start, *x.run.split("/"), x.group, x.pod, x.slots), reverse=True)
    for lease in spares:
        if scope.enough(scope.gone()):
            return
        with_it = [lease.number, *(x.number for x in fillers_on(world, lease))]
        scope.cuts.append(Cut("spare", lease.run, lease.group, with_it, lease.gpus))


def fillers_on(world: World, spare: Lease) -> list[Lease]:
    """Every lease that ends because somebody sits on this spare: the filler goes whole."""
    found = []
    for lease in world.open_leases():
        if (
            lease.role == "Borrowed"
            and lease.node == spare.node
            and set(lease.slots) & set(spare.slots)
        ):
            run = world.runs[lease.run]
            found += [x for x in world.leases_of(run, run.unit_of(lease.group)) if x not in found]
    return found


def shrink_in_rounds(world: World, scope: Scope) -> None:
    """One group per run per round, who is furthest above its minimum first; the highest index."""
    while not scope.enough(scope.gone()):
        order = []
        for key in sorted(world.runs, key=lambda k: k.split("/")):
            run = world.runs[key]
            above = width(world, run, scope) - run.least
            if run.elastic and above >= run.group_gpus and _groups_inside(world, run, scope):
                order.append((-above, key.split("/"), run))
        if not order:
            return
        for _, _, run in sorted(order, key=lambda each: each[:2]):
            if scope.enough(scope.gone()):
                return
            groups = _groups_inside(world, run, scope)
            if not groups or width(world, run, scope) - run.group_gpus < run.least:
                continue
            _take_group(world, run, max(groups), scope)


def _take_group(world: World, run: Run, group: int, scope: Scope) -> None:
    gone = scope.gone()
    leases = [
        lease for lease in world.leases_of(run) if lease.group == group and lease.number not in gone
    ]
    numbers = [lease.number for lease in leases]
    gpus = sum(lease.gpus for lease in leases if lease.role != "Spare")
    scope.cuts.append(Cut("shrink", run.key, group, numbers, gpus))


def width(world: World, run: Run, scope: Scope | None = None) -> int:
    """GPUs under active (or filling) leases that stay, spares apart."""
    leases = [x for x in world.open_leases() if not x.ending]
    if scope is not None:
        leases = staying(world, scope)
    return sum(x.gpus for x in leases if x.run == run.key and x.role != "Spare")


def _groups_inside(world: World, run: Run, scope: Scope) -> list[int]:
    return sorted(
        {
            lease.group
            for lease in choosable(world, scope)
            if lease.run == run.key and lease.role != "Spare"
        }
    )


def bundles(world: World, scope: Scope) -> dict[str, list[tuple[str, str, int]]]:
    """What may be drawn, by owner, fixed before the first draw.

    A run at its floor whole; of a sweep above its minimum its highest groups, each alone, as many
    as lie above the minimum; at its minimum all of it. Whom a Resolution started is protected for
    its tenure. (Group -1: the whole run.)
    """
    found: dict[str, list[tuple[str, str, int]]] = {}
    for run in world.runs.values():
        groups = _groups_inside(world, run, scope)
        if not groups or run.key == scope.beneficiary:
            continue
        namespace, name = run.key.split("/")
        if world.protected_until(run, scope.beneficiary) > scope.at:
            continue
        mine = [(namespace, name, -1)]
        above = (width(world, run, scope) - run.least) // run.group_gpus
        if run.is_sweep and above > 0:
            mine = [(namespace, name, group) for group in groups[-above:]]
        found.setdefault(run.owner, []).extend(mine)
    return found


def leases_in(world: World, bundle: tuple[str, str, int], scope: Scope) -> list[Lease]:
    """All that dies with a bundle: also outside the scope, and its spares."""
    namespace, name, group = bundle
    gone = scope.gone()
    run = world.runs[f"{namespace}/{name}"]
    return [
        lease
        for lease in world.leases_of(run)
        if group in (-1, lease.group) and lease.number not in gone and not lease.ending
    ]


def draw(world: World, scope: Scope, seed: Seed) -> None:
    """Until it is enough, or all are drawn."""
    if scope.enough(scope.gone()):
        return
    choices = bundles(world, scope)
    if not choices:
        return
    urn = Urn(seed(), choices)
    while not scope.enough(scope.gone()):
        bundle = urn.draw()
        if bundle is None:
            return
        _take_bundle(world, bundle, scope)


def _take_bundle(world: World, bundle: tuple[str, str, int], scope: Scope) -> None:
    leases = leases_in(world, bundle, scope)
    numbers = [lease.number for lease in leases]
    namespace, name, group = bundle
    gpus = sum(lease.gpus for lease in leases if lease.role != "Spare")
    scope.cuts.append(Cut("draw", f"{namespace}/{name}", group, numbers, gpus))


def would_do(world: World, scope: Scope) -> bool:
    """Whether cutting all that may be cut would be enough."""
    drop_spares(world, scope)
    shrink_in_rounds(world, scope)
    if scope.enough(scope.gone()):
        return True
    for names in bundles(world, scope).values():
        for bundle in names:
            _take_bundle(world, bundle, scope)
    return scope.enough(scope.gone())


def give_back(scope: Scope) -> None:
    """No innocent victims: backwards, every one without whom it is still enough.

    A spare or a group of a run that was drawn whole is of no use to the dead, nor is a spare to a
    group that was drawn or given up.
    """
    for cut in reversed(scope.cuts):
        dead = any(
            other.kind != "spare"
            and other.run == cut.run
            and other is not cut
            and not other.returned
            and (other.group == -1 or (other.group == cut.group and cut.kind == "spare"))
            for other in scope.cuts
        )
        if dead:
            continue
        cut.returned = True
        if not scope.enough(scope.gone()):
            cut.returned = False
