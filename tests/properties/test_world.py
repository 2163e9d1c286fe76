"""The World is the fold of its facts: step by step or rebuilt, and a what-if leaves no trace."""

from contextlib import ExitStack

from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from msgspec.structs import replace
from tests.properties.snapshots import snapshot
from tests.properties.worlds import NOW, a_budget, a_lease, a_node, a_run, a_world, an_envelope

from leasehold.core.facts import (
    Aggregate,
    Closed,
    Closure,
    ClosureReason,
    Ending,
    Gang,
    Node,
    Pod,
    PodPhase,
    Relation,
    Role,
    Taint,
    Toleration,
)
from leasehold.core.units import HOUR
from leasehold.core.world.accounts import Claim
from leasehold.core.world.fleet import Shape
from leasehold.core.world.rebuild import rebuilt
from leasehold.core.world.world import World

RUNS = ("fixed", "elastic", "sweep")
TAINT = Taint(key="k", value="v")
nodes = st.builds(
    lambda i, fabric, gpus, ready, cordoned, tainted, pods: replace(
        a_node(f"n{i}", fabric, gpus=gpus),
        ready=ready,
        cordoned=cordoned,
        taints=(TAINT,) if tainted else (),
        pods_max=pods,
    ),
    st.integers(0, 3),
    st.sampled_from("ab"),
    st.sampled_from((4, 8)),
    st.sampled_from((True, True, False)),
    st.sampled_from((False, False, True)),
    st.sampled_from((False, False, True)),
    st.sampled_from((110, 3)),
)
phases = st.sampled_from(PodPhase)


class WorldAgainstItsRebuild(RuleBasedStateMachine):
    """Any sequence of objects that come, change and go, and of leases that open and end."""

    def __init__(self) -> None:
        super().__init__()
        self.now = NOW
        self.batch = 0
        self.world = a_world([a_node("n0"), a_node("n1", "b")], [a_budget("t")])
        self.world.put_run(a_run("fixed", groups=4, spares=4))
        self.world.put_run(a_run("elastic", groups=4, minimum=4, span=9 * HOUR))
        self.world.put_run(a_run("sweep", groups=4, gang=Gang.GROUP))

    @rule(node=nodes)
    def put_node(self, node: Node) -> None:
        self.world.put_node(node)

    @rule(i=st.integers(0, 3))
    def drop_node(self, i: int) -> None:
        self.world.drop_node(f"n{i}")

    @rule(start=st.sampled_from((0, NOW)), cap=st.integers(0, 20), both=st.booleans())
    def put_budget(self, start: int, cap: int, both: bool) -> None:
        one, two = (replace(an_envelope(f"n/t/{name}", "t"), start=start) for name in "ef")
        envelopes = (one, two) if both else (one,)
        all_of = Aggregate(key="n/t/all", flavor="H", members=("n/t/e",), max_concurrency=cap)
        self.world.put_budget(a_budget("t", *envelopes, aggregates=(all_of,)))

    @rule(run=st.sampled_from(RUNS), span=st.sampled_from((None, 5 * HOUR, 9 * HOUR)))
    def edit_run(self, run: str, span: int | None) -> None:
        old = self.world.runs.get(f"uid-{run}")
        if old is not None:
            spec = replace(old.spec, max_duration=span)
            self.world.put_run(replace(old, spec=spec, version=old.version + 1))

    @rule(
        run=st.sampled_from(RUNS),
        i=st.integers(0, 3),
        gpus=st.integers(1, 4),
        role=st.sampled_from(Role),
        lent=st.booleans(),
        group=st.integers(0, 3),
    )
    def open(self, run: str, i: int, gpus: int, role: Role, lent: bool, group: int) -> None:
        state = self.world.fleet.nodes.get(f"n{i}")
        known = self.world.runs.get(f"uid-{run}")
        if state is None or known is None:
            return
        wanted = state.spare & ~state.filler if role is Role.BORROWED else ~state.occupied
        slots = [slot for slot in range(4) if wanted >> slot & 1][:gpus]
        if slots:
            self.batch += 1
            relation = Relation.BORROWED if lent else Relation.SHARED
            self.world.fold_open(
                a_lease(known, f"n{i}", slots, batch=self.batch, index=0, group=group,
                        pod=self.batch, role=role, relation=relation, start=self.now)
            )  # fmt: skip

    def names(self, *, marked: bool) -> list[str]:
        return sorted(
            each.name
            for each in self.world.leases.values()
            if each.is_open and (marked or each.ending is None)
        )

    @precondition(lambda self: bool(self.names(marked=False)))
    @rule(pick=st.integers(0, 99))
    def mark(self, pick: int) -> None:
        names = self.names(marked=False)
        self.batch += 1
        ending = Ending(
            why=ClosureReason(reason=Closed.SHRINK),
            deadline=self.now + HOUR,
            batch=self.batch,
            at=self.now,
        )
        self.world.fold_ending(names[pick % len(names)], ending)

    @precondition(lambda self: bool(self.names(marked=True)))
    @rule(pick=st.integers(0, 99))
    def close(self, pick: int) -> None:
        names = self.names(marked=True)
        lease = self.world.leases[names[pick % len(names)]]
        self.batch += 1
        why = lease.ending.why if lease.ending else ClosureReason(reason=Closed.COMPLETED)
        self.world.fold_close(lease.name, Closure(why=why, at=self.now, batch=self.batch))

    @rule(pick=st.integers(0, 99), phase=phases, i=st.integers(0, 3), foreign=st.booleans())
    def put_pod(self, pick: int, phase: PodPhase, i: int, foreign: bool) -> None:
        """A pod of an open lease, of a closed one, or somebody else's."""
        leases = [each for each in self.world.leases.values() if each.pod]
        if foreign or not leases:
            pod = Pod(namespace="n", name=f"other{pick % 3}", node=f"n{i}", gpus=1, phase=phase)
        else:
            lease = sorted(leases, key=lambda each: each.name)[pick % len(leases)]
            pod = Pod(namespace="n", name=lease.pod, node=lease.node, gpus=lease.gpus,
                      run_uid=lease.uid, phase=phase)  # fmt: skip
        self.world.put_pod(pod)

    @precondition(lambda self: bool(self.world.pods))
    @rule(pick=st.integers(0, 99))
    def drop_pod(self, pick: int) -> None:
        names = sorted(self.world.pods)
        self.world.drop_pod(names[pick % len(names)])

    @rule(hours=st.integers(0, 3))
    def wait(self, hours: int) -> None:
        self.now += hours * HOUR

    @invariant()
    def it_is_the_fold_of_its_facts(self) -> None:
        mine, again = snapshot(self.world, self.now), snapshot(rebuilt(self.world), self.now)
        for part in mine:
            assert mine[part] == again[part], part


WorldAgainstItsRebuild.TestCase.settings = settings(max_examples=60, stateful_step_count=30)
TestTheWorld = WorldAgainstItsRebuild.TestCase


# What to do under a mark, and to which lease or node.
what_ifs = st.lists(
    st.tuples(
        st.sampled_from(
            ("take", "give", "plan", "pod", "unplan", "tolerate", "add", "remove", "claim", "begin",
             "undo")
        ),
        st.integers(0, 5),
    ),
    max_size=25,
)  # fmt: skip


def a_busy_world() -> World:
    tainted = replace(a_node("n2", "b"), taints=(TAINT,))
    world = a_world([a_node("n0"), a_node("n1", "b"), tainted], [a_budget("t")])
    run = a_run("elastic", groups=6, minimum=4, span=9 * HOUR)
    world.put_run(run)
    roles = (Role.ACTIVE, Role.SPARE, Role.ACTIVE, Role.BORROWED, Role.ACTIVE, Role.ACTIVE)
    places = ((0, 0), (0, 4), (1, 0), (0, 4), (1, 4), (2, 0))
    for index, (role, (node, slot)) in enumerate(zip(roles, places)):
        relation = Relation.BORROWED if index % 2 else Relation.OWNED
        world.fold_open(
            a_lease(run, f"n{node}", range(slot, slot + 4), batch=1, index=index, group=index,
                    role=role, relation=relation)
        )  # fmt: skip
    return world


@given(steps=what_ifs)
@example(steps=[("tolerate", 0), ("begin", 0), ("tolerate", 0), ("undo", 0)])
@settings(max_examples=300)
def test_undoing_a_what_if_restores_every_index(steps: list[tuple[str, int]]) -> None:
    world = a_busy_world()
    leases = sorted(world.leases)
    before = snapshot(world, NOW)
    open_ones = [_begun(world)]
    seen = [before]
    gone: list[set[str]] = [set()]  # leases taken off the fleet, and "$" + those off the accounts
    planned = [0]
    for what, pick in steps:
        _change(world, what, leases[pick], open_ones, seen, gone, planned)
    while open_ones:
        open_ones.pop().close()
        assert snapshot(world, NOW) == seen.pop()
    assert not world.what_if.active


def _begun(world: World) -> ExitStack:
    stack = ExitStack()
    stack.enter_context(world.what_if.opened())
    return stack


def _change(
    world: World,
    what: str,
    name: str,
    open_ones: list[ExitStack],
    seen: list[dict[str, object]],
    gone: list[set[str]],
    planned: list[int],
) -> None:
    """One what-if that is legal now; the others are left out."""
    lease, shape = world.leases[name], Shape(2, 10, 100)
    if what == "begin":
        seen.append(snapshot(world, NOW))
        open_ones.append(_begun(world))
        gone.append(set(gone[-1]))
        planned.append(planned[-1])
    elif what == "undo" and len(open_ones) > 1:
        open_ones.pop().close()
        assert snapshot(world, NOW) == seen.pop()
        gone.pop()
        planned.pop()
    elif what == "give" and name not in gone[-1]:
        gone[-1].add(name)
        world.fleet.give(lease)
    elif what == "take" and name in gone[-1]:
        gone[-1].remove(name)
        world.fleet.take(lease)
    elif what == "plan":
        world.fleet.plan(lease.node, 1)
    elif what == "pod":
        planned[-1] += 1
        world.fleet.plan_pod("n1", shape)
    elif what == "unplan" and planned[-1]:
        planned[-1] -= 1
        world.fleet.unplan("n1", shape)
    elif what == "tolerate":
        world.fleet.tolerate((Toleration(key="k", operator="Exists"),))
    elif what == "remove" and f"${name}" not in gone[-1]:
        gone[-1].add(f"${name}")
        world.accounts.remove(lease, world.terms[name])
    elif what == "add" and f"${name}" in gone[-1]:
        gone[-1].remove(f"${name}")
        world.accounts.add(lease, world.terms[name])
    elif what == "claim":
        world.accounts.claim(
            Claim(
                uid="u", payer="n/t/e", start=NOW, end=NOW + HOUR, gpus=2, borrowed=False, gpu_ms=9
            )
        )
