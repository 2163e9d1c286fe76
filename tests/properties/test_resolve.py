"""resolve against brute force on small fleets: the cheapest place, and no innocent victim."""

from collections.abc import Iterable

from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from tests.properties.worlds import NOW, a_budget, a_lease, a_node, a_run, a_wish, a_world

from leasehold.core.decisions.agenda import Agenda
from leasehold.core.decisions.cuts import Cut, CutKind
from leasehold.core.decisions.resolve import Resolved, resolve
from leasehold.core.facts import Gang, Lease, Role, Run
from leasehold.core.resolutions import CutCause, Resolution
from leasehold.core.units import HOUR
from leasehold.core.verdicts import Refusal, Refused
from leasehold.core.world.world import World

SEED = "5e" * 32
# kind, groups, GPUs of a group, whether it has spares, hours since it began, whether a Resolution
# started it, whether it prefers domain b
run_rows = st.lists(
    st.tuples(
        st.sampled_from(("fixed", "elastic", "stiff", "sweep", "filler")),
        st.integers(1, 3),
        st.sampled_from((2, 4)),
        st.booleans(),
        st.integers(1, 4),
        st.sampled_from((False, False, False, True)),
        st.booleans(),
    ),
    min_size=2,
    max_size=7,
)
fleets = st.lists(st.sampled_from("ab"), min_size=1, max_size=4)  # nodes of eight, by fabric
sizes = st.sampled_from((2, 4, 8))
Rows = list[tuple[str, int, int, bool, int, bool, bool]]
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
    for i, (kind, groups, gpus, spares, hours, protected, last) in enumerate(rows):
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
        if protected:
            world.fold_resolution(_resolution_for(run, i + 1))
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


def _resolution_for(run: Run, batch: int) -> Resolution:
    return Resolution(
        name=f"{run.name}-{batch}", batch=batch, cause=CutCause.RESERVATION, subject="n/s",
        beneficiary=run.key, beneficiary_uid=run.uid, flavor="H", domains=("r/c/a",), envelope="",
        instant=NOW, deficit=0,
    )  # fmt: skip


class Model:
    """Leases that stand, as a set of names, and how many pods fit beside them."""

    def __init__(self, world: World, pod_gpus: int) -> None:
        self.leases = {name: world.leases[name] for name in world.leases}
        self.runs = world.runs
        self.domain = {name: state.node.domain for name, state in world.fleet.nodes.items()}
        self.pod_gpus = pod_gpus
        self.protected = {
            each.beneficiary_uid
            for each in world.resolutions.values()
            if any(lease.uid == each.beneficiary_uid and lease.start > NOW - 2 * HOUR
                   for lease in world.leases.values())
        }  # fmt: skip
        self.standing = set(self.leases)

    def room(self, domain: str) -> int:
        pods = 0
        for node in (name for name in self.domain if self.domain[name] == domain):
            held = {slot for name in self.standing if self.leases[name].node == node
                    for slot in self.leases[name].slots}  # fmt: skip
            pods += (8 - len(held)) // self.pod_gpus
        return pods

    def here(self, domain: str) -> list[Lease]:
        return [
            self.leases[name]
            for name in sorted(self.standing)
            if self.domain[self.leases[name].node] == domain
        ]

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

    def loss(self, domain: str, needed: int) -> tuple[int, int, int]:
        """By lottery, by shrinking, in spares; what is cut on the way stays cut."""
        spares = shrunk = 0
        held = [each for each in self.here(domain) if each.role is Role.SPARE]
        held.sort(key=lambda x: (x.start, x.run_key, x.group, x.index, x.slots), reverse=True)
        for each in held:
            if self.room(domain) < needed:
                on_top = {other.uid for other in self.leases.values()
                          if other.role is Role.BORROWED and other.node == each.node
                          and set(other.slots) & set(each.slots)}  # fmt: skip
                self.end([each, *(lease for uid in on_top for lease in self.of(uid))])
                spares += each.gpus
        while self.room(domain) < needed:
            uids = {each.uid for each in self.here(domain) if each.role is Role.ACTIVE}
            elastic = [u for u in uids if self.runs[u].spec.malleable and self.above(u) >= 1]
            if not elastic:
                break
            amounts = {uid: self.width(uid) - self.minimum(uid) for uid in elastic}
            for uid in sorted(elastic, key=lambda uid: (-amounts[uid], self.runs[uid].key)):
                if self.room(domain) < needed:
                    group = max(each.group for each in self.here(domain)
                                if each.uid == uid and each.role is Role.ACTIVE)  # fmt: skip
                    gone = self.of(uid, group)
                    shrunk += sum(each.gpus for each in gone if each.role is Role.ACTIVE)
                    self.end(gone)
        left = max(0, needed - self.room(domain)) * self.pod_gpus
        return left, shrunk, spares

    def end_every_bundle(self, domain: str) -> None:
        """All that the lottery could draw there, after the structural cuts."""
        uids = {each.uid for each in self.here(domain) if each.role is not Role.SPARE}
        for uid in sorted(uids - self.protected):
            if self.runs[uid].spec.gang is Gang.RUN or self.above(uid) <= 0:
                self.end(self.of(uid))
                continue
            groups = sorted({each.group for each in self.here(domain)
                             if each.uid == uid and each.role is not Role.SPARE})  # fmt: skip
            for group in groups[-self.above(uid) :]:
                self.end(self.of(uid, group))


def decided(world: World, run: Run) -> Resolved | Refused:
    wish = a_wish(world, run)
    return resolve(world, wish, Agenda(), now=NOW, seeder=lambda: SEED)


@given(fabrics=fleets, rows=run_rows, gpus=sizes, pods=st.integers(1, 3))
@settings(max_examples=300)
def test_one_group_goes_where_the_loss_is_least(
    fabrics: list[str], rows: Rows, gpus: int, pods: int
) -> None:
    world = a_full_world(fabrics, rows)
    run = a_run("new", "z", group_gpus=gpus * pods, pod_gpus=gpus)
    world.put_run(run)
    answer = decided(world, run)
    costs = []
    for domain in sorted({f"r/c/{fabric}" for fabric in fabrics}):
        model = Model(world, gpus)
        loss = model.loss(domain, pods)
        model.end_every_bundle(domain)
        if model.room(domain) >= pods:
            costs.append((loss, domain))
    if isinstance(answer, Refused):
        assert answer.reason is Refusal.CAPACITY
        assert costs == []
    else:
        assert answer.site.domains == (min(costs)[1],)
        compared = {domain: tuple(loss) for domain, *loss in answer.site.losses}
        assert compared[min(costs)[1]] == min(costs)[0]


@given(
    fabrics=fleets,
    rows=run_rows,
    gpus=sizes,
    groups=st.integers(1, 3),
    spread=st.booleans(),
    spares=st.booleans(),
)
@example(
    fabrics=["a", "b"], rows=[("stiff", 2, 4, True, 3, False, False)] * 2, gpus=8, groups=1,
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
    answer = decided(world, run)
    assume(isinstance(answer, Resolved))
    assert isinstance(answer, Resolved)
    model = Model(world, gpus)
    kept, site = answer.cuts.kept, answer.site
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
