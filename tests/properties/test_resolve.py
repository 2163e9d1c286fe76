"""Site and Resolution against brute force on small fleets: cheapest place, no innocent victim."""

from collections import Counter
from collections.abc import Iterable
from itertools import product

from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from tests.properties.worlds import NOW, a_budget, a_lease, a_node, a_run, a_wish, a_world

from leasehold.core.calendar.entries import Calendar
from leasehold.core.facts import Gang, Lease, Role, Run
from leasehold.core.preemption.resolve import PlannedSite, Resolved, resolve
from leasehold.core.preemption.site import Site, choose_site
from leasehold.core.preemption.victims import Cut, CutKind
from leasehold.core.units import HOUR
from leasehold.core.verdicts import Refused
from leasehold.core.world.world import World

SEED = "5e" * 32
# kind, groups, GPUs of a group, whether it has spares, hours since it began (for two of them it is
# protected), whether it prefers domain b
run_rows = st.lists(
    st.tuples(
        st.sampled_from(("fixed", "elastic", "stiff", "sweep", "filler")),
        st.integers(1, 3),
        st.sampled_from((2, 4)),
        st.booleans(),
        st.integers(1, 4),
        st.booleans(),
    ),
    min_size=2,
    max_size=7,
)
fleets = st.lists(st.sampled_from("ab"), min_size=1, max_size=4)  # nodes of eight, by fabric
sizes = st.sampled_from((2, 4, 8))
Rows = list[tuple[str, int, int, bool, int, bool]]
Slots = dict[str, list[int]]


def a_full_world(fabrics: list[str], rows: Rows) -> World:
    """Every run where it first fits; what does not fit is not there."""
    nodes = {f"n{i}": fabric for i, fabric in enumerate(fabrics)}
    world = a_world(
        [a_node(name, fabric) for name, fabric in nodes.items()],
        [a_budget(owner) for owner in "xyz"],
    )
    free: Slots = {name: list(range(8)) for name in nodes}
    spare: Slots = {name: [] for name in nodes}
    for i, (kind, groups, gpus, spares, hours, last) in enumerate(rows):
        fills = kind == "filler"
        run = a_run(
            f"r{i}",
            "xy"[i % 2],
            groups=1 if fills else groups,
            group_gpus=gpus,
            pod_gpus=gpus,
            spares=gpus if spares and not fills else 0,
            minimum={"elastic": gpus, "stiff": gpus * min(2, groups)}.get(kind),
            gang=Gang.GROUP if kind == "sweep" else Gang.RUN,
        )
        roles = [Role.BORROWED if fills else Role.ACTIVE]
        roles += [Role.SPARE] if run.spec.spares_per_group else []
        order = sorted(nodes, key=lambda name: ((nodes[name] == "b") is not last, name))
        found = _place(run, spare if fills else free, [(n, nodes[n]) for n in order], roles)
        if found is None:
            continue
        world.put_run(run)
        for index, (group, role, node, slots) in enumerate(found):
            lease = a_lease(run, node, slots, batch=i + 1, index=index, group=group, role=role,
                            start=NOW - hours * HOUR)  # fmt: skip
            world.fold_open(lease)
            if role is Role.SPARE:
                spare[node] = sorted([*spare[node], *slots])
    return world


def _place(
    run: Run, pool: Slots, nodes: list[tuple[str, str]], roles: list[Role]
) -> list[tuple[int, Role, str, list[int]]] | None:
    gpus = run.spec.group_gpus
    left = {name: list(slots) for name, slots in pool.items()}
    found: list[tuple[int, Role, str, list[int]]] = []
    for group in range(run.spec.total_gpus // gpus):
        for domain in dict.fromkeys(fabric for _, fabric in nodes):
            inside = [name for name, fabric in nodes if fabric == domain]
            if sum(len(left[name]) // gpus for name in inside) >= len(roles):
                for role in roles:
                    name = next(name for name in inside if len(left[name]) >= gpus)
                    found.append((group, role, name, left[name][:gpus]))
                    left[name] = left[name][gpus:]
                break
        else:
            return None
    pool.update(left)
    return found


class Model:
    """Leases that stand, as a set of names, and how many pods fit beside them."""

    def __init__(self, world: World, pod_gpus: int) -> None:
        self.leases = {name: world.leases[name] for name in world.leases}
        self.runs = world.runs
        self.domain = {name: state.node.domain for name, state in world.fleet.nodes.items()}
        self.pod_gpus = pod_gpus
        self.protected = {each.uid for each in self.leases.values() if each.start > NOW - 2 * HOUR}
        self.standing = set(self.leases)

    def room(self, domain: str) -> int:
        pods = 0
        for node in (name for name in self.domain if self.domain[name] == domain):
            held = {slot for name in self.standing if self.leases[name].node == node
                    for slot in self.leases[name].slots}  # fmt: skip
            pods += (8 - len(held)) // self.pod_gpus
        return pods

    def of(self, uid: str, group: int | None = None) -> list[Lease]:
        leases = (self.leases[name] for name in sorted(self.standing))
        return [each for each in leases if each.uid == uid and group in (None, each.group)]

    def width(self, uid: str) -> int:
        return sum(each.gpus for each in self.of(uid) if each.role is not Role.SPARE)

    def minimum(self, uid: str) -> int:
        spec = self.runs[uid].spec
        if spec.malleable is not None:
            return spec.malleable.min_gpus
        return spec.group_gpus if spec.gang is Gang.GROUP else spec.total_gpus

    def above(self, uid: str) -> int:
        return (self.width(uid) - self.minimum(uid)) // self.runs[uid].spec.group_gpus

    def end(self, leases: Iterable[Lease]) -> None:
        self.standing -= {each.name for each in leases}

    def surplus(self, uid: str) -> set[int]:
        """The groups above the minimum of an elastic run, which may be shrunk."""
        if self.runs[uid].spec.malleable is None:
            return set()
        groups = sorted({each.group for each in self.of(uid)})
        return set(groups[len(groups) - self.above(uid) :])

    def steps(self, node: str) -> list[str]:
        """By which step of R3 each GPU of a node would come free, cheapest first. GPUs of protected
        runs are in none."""
        kinds = dict.fromkeys(range(8), "free")
        order = ("free", "spare", "shrink", "lottery", "kept")
        for lease in self.leases.values():
            if lease.node != node or lease.role is Role.BORROWED:
                continue  # a filler lies on a spare, and goes with it
            if lease.role is Role.SPARE:
                kind = "spare"
            elif lease.group in self.surplus(lease.uid):
                kind = "shrink"
            else:
                kind = "kept" if lease.uid in self.protected else "lottery"
            kinds.update(dict.fromkeys(lease.slots, kind))
        return sorted((kind for kind in kinds.values() if kind != "kept"), key=order.index)

    def losses(self, domain: str, pods: int) -> list[tuple[int, int, int]]:
        """Of every way to deal so many pods to the nodes of a domain: GPUs by lottery, by
        shrinking, of spares."""
        steps = [self.steps(name) for name in self.domain if self.domain[name] == domain]
        ways = product(*(range(len(each) // self.pod_gpus + 1) for each in steps))
        found = []
        for way in ways:
            if sum(way) == pods:
                taken = [
                    kind
                    for count, each in zip(way, steps, strict=True)
                    for kind in each[: count * self.pod_gpus]
                ]
                counts = Counter(taken)
                found.append((counts["lottery"], counts["shrink"], counts["spare"]))
        return found


def decided(world: World, run: Run) -> tuple[Site, Resolved | Refused] | None:
    """Its site and what is cut there; None if there is no site."""
    wish = a_wish(world, run)
    site = choose_site(world, wish, Calendar(), at=NOW, now=NOW)
    if site is None:
        return None
    planned = PlannedSite(domains=site.domains, money=site.money)
    return site, resolve(world, wish, Calendar(), planned, now=NOW, seeder=lambda: SEED)


@given(fabrics=fleets, rows=run_rows, gpus=sizes, pods=st.integers(1, 3))
@settings(max_examples=300)
def test_one_group_goes_where_the_loss_is_least(
    fabrics: list[str], rows: Rows, gpus: int, pods: int
) -> None:
    world = a_full_world(fabrics, rows)
    run = a_run("new", "z", group_gpus=gpus * pods, pod_gpus=gpus)
    world.put_run(run)
    answer, model = decided(world, run), Model(world, gpus)
    costs = {
        domain: min(losses)
        for domain in sorted({f"r/c/{fabric}" for fabric in fabrics})
        if (losses := model.losses(domain, pods))
    }
    if answer is None:
        assert costs == {}
        return
    site, resolved = answer
    assert site.losses == tuple((domain, *loss) for domain, loss in sorted(costs.items()))
    assert site.domains == (min(costs, key=lambda domain: (costs[domain], domain)),)
    assert isinstance(resolved, Resolved), "all that may be cut is enough"


@given(
    fabrics=fleets,
    rows=run_rows,
    gpus=sizes,
    groups=st.integers(1, 3),
    spread=st.booleans(),
    spares=st.booleans(),
)
@example(
    fabrics=["a", "b"], rows=[("stiff", 2, 4, True, 3, False)] * 2, gpus=8, groups=1,
    spread=True, spares=False,
)  # fmt: skip
@settings(max_examples=400)
def test_nobody_is_cut_without_need_or_out_of_reach(
    fabrics: list[str], rows: Rows, gpus: int, groups: int, spread: bool, spares: bool
) -> None:
    world = a_full_world(fabrics, rows)
    run = a_run("new", "z", groups=groups, group_gpus=gpus, pod_gpus=gpus, spread=spread,
                spares=gpus if spares else 0)  # fmt: skip
    world.put_run(run)
    found = decided(world, run)
    assume(found is not None)
    assert found is not None
    site, answer = found
    assert isinstance(answer, Resolved), "all that may be cut is enough"
    model = Model(world, gpus)
    kept = answer.cuts.kept
    per_group = 2 if spares else 1

    def fits(cuts: Iterable[Cut]) -> bool:
        model.standing = set(model.leases)
        for cut in cuts:
            model.end((*cut.leases, *cut.fillers))
        rooms = [model.room(domain) // per_group for domain in site.domains]
        return (sum(rooms) if spread else max(rooms)) >= groups

    assert fits(kept)
    for cut in kept:
        if not _is_moot(cut, kept):
            assert not fits([other for other in kept if other is not cut]), cut.name
    taken = answer.cuts.taken
    assert not taken or not fits(taken[:-1])
    for cut in kept:
        reached = any(model.domain[lease.node] in site.domains for lease in cut.leases)
        assert reached, cut.name
        assert cut.kind is CutKind.DRAW or all(
            model.domain[lease.node] in site.domains for lease in cut.leases
        )
        assert {lease.uid for lease in cut.leases} == {cut.uid}
        assert cut.kind is not CutKind.DRAW or cut.uid not in model.protected
    _check_minimum(model, kept)
    assert len(answer.plan.packed.places) == groups * per_group
    chosen = {model.domain[place.node] for place in answer.plan.packed.places}
    assert chosen <= set(site.domains)


def _is_moot(cut: Cut, kept: tuple[Cut, ...]) -> bool:
    """What ends anyway with the run or the group that it belongs to is no victim of its own."""
    return any(
        other is not cut
        and other.uid == cut.uid
        and other.kind is not CutKind.SPARE
        and other.group in (None, cut.group)
        for other in kept
    )


def _check_minimum(model: Model, kept: tuple[Cut, ...]) -> None:
    """Shrinking alone takes nobody below its minimum."""
    model.standing = set(model.leases)
    for cut in kept:
        if cut.kind is CutKind.SHRINK:
            model.end(cut.leases)
    for uid in {cut.uid for cut in kept if cut.kind is CutKind.SHRINK}:
        assert model.width(uid) >= model.minimum(uid)


@given(fabrics=fleets, rows=run_rows, gpus=sizes, groups=st.integers(1, 2))
@settings(max_examples=100)
def test_resolving_changes_nothing_and_repeats_itself(
    fabrics: list[str], rows: Rows, gpus: int, groups: int
) -> None:
    world = a_full_world(fabrics, rows)
    run = a_run("new", "z", groups=groups, group_gpus=gpus, pod_gpus=gpus)
    world.put_run(run)
    free = {name: state.free for name, state in world.fleet.nodes.items()}
    first, second = decided(world, run), decided(world, run)
    assert first == second
    assert {name: state.free for name, state in world.fleet.nodes.items()} == free
