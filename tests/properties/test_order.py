"""The order in which facts arrive does not matter: the same world decides the same batches."""

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.properties.worlds import KEY, NOW, a_budget, a_node, a_run, a_world, an_envelope

from leasehold.control.decide import decide
from leasehold.core.facts import Budget, Gang, Node, Pod, PodPhase, Run
from leasehold.core.ledger.batch import batch_to_wire, line
from leasehold.core.ledger.chain import canonical
from leasehold.core.ledger.head import Head
from leasehold.core.objects.reservation import reservation_status
from leasehold.core.units import HOUR, MINUTE
from leasehold.core.world.invariants import Touched, check_all, check_delta
from leasehold.core.world.rebuild import rebuilt
from leasehold.core.world.world import World

# owner, groups, GPUs of a group, spares, elastic or fixed, gang, span, submitted at
run_rows = st.lists(
    st.tuples(
        st.sampled_from(("t", "u", "v")),
        st.integers(1, 3),
        st.sampled_from((2, 4, 8)),
        st.booleans(),
        st.booleans(),
        st.sampled_from(Gang),
        st.sampled_from((None, HOUR, 9 * HOUR)),
        st.integers(0, 2),
    ),
    min_size=2,
    max_size=7,
)
Rows = list[tuple[str, int, int, bool, bool, Gang, int | None, int]]
NODES = [a_node(f"n{i}", fabric) for i, fabric in enumerate("aaabb")]
BUDGETS = [
    a_budget("t"),
    a_budget("u", an_envelope("n/u/e", "u", 12), an_envelope("n/u/f", "u", 6, end=NOW + HOUR)),
    a_budget("v", an_envelope("n/v/e", "v", 8, max_gpu_ms=60 * HOUR)),
]


def runs_of(rows: Rows) -> list[Run]:
    return [
        a_run(
            f"r{i}",
            owner,
            groups=groups,
            group_gpus=gpus,
            pod_gpus=min(gpus, 4),
            spares=min(gpus, 4) if spares else 0,
            minimum=gpus if elastic and gang is Gang.RUN else None,
            gang=gang,
            span=span,
            created=created,
        )
        for i, (owner, groups, gpus, spares, elastic, gang, span, created) in enumerate(rows)
    ]


Decided = tuple[bytes, bytes, bytes]  # batches, reservations, messages


def turns(nodes: list[Node], budgets: list[Budget], runs: list[Run]) -> list[Decided]:
    """Return what is decided now, in two turns, and at three later times."""
    world = a_world(nodes, budgets)
    decided = []
    early = [run for run in runs if run.name <= f"r{len(runs) // 2}"]
    late = [run for run in runs if run not in early]
    for after, submitted in ((0, early), (0, late), (1, []), (16, []), (120, [])):
        for run in submitted:
            world.put_run(run)
        decided.append(a_turn(world, NOW + after * MINUTE))
    return decided


def a_turn(world: World, now: int) -> Decided:
    """Take a turn like the shell and return it in canonical bytes; its pods then run at once."""
    turn = decide(world, now=now, key=KEY)
    opened = tuple(each for batch in turn.batches for each in batch.opened)
    touched = Touched(opened=tuple(world.leases[each.name] for each in opened))
    assert check_delta(world, touched, now) == []
    said = [canonical(batch_to_wire(batch)) for batch in turn.batches]
    told: list[object] = [
        [each.kind, each.subject, each.reason, each.message] for each in turn.notices
    ]
    for batch in turn.batches:
        digest = str(line(batch, world.head.digest)["digest"])
        world.head = Head(seq=batch.seq, digest=digest, instant=now)
    for lease in list(world.leases.values()):
        if lease.is_open and lease.pod:
            pod = Pod(namespace="n", name=lease.pod, node=lease.node, run_uid=lease.uid,
                      gpus=sum(world.leases[each].gpus
                               for each in world.open_by_pod[f"n/{lease.pod}"]),
                      phase=PodPhase.RUNNING)  # fmt: skip
            if lease.ending is None:
                world.put_pod(pod)
            else:
                world.drop_pod(pod.key)
    assert check_all(world, now) == []
    plans = {subject: reservation_status(each) for subject, each in world.reservations.items()}
    return b"\n".join(said), canonical(plans), canonical([*told, turn.wake_at])


@given(rows=run_rows, shuffle=st.randoms(use_true_random=False))
@settings(max_examples=40)
def test_insertion_order_does_not_change_what_is_decided(rows: Rows, shuffle: Random) -> None:
    runs = runs_of(rows)
    nodes, budgets, again = list(NODES), list(BUDGETS), list(runs)
    for each in (nodes, budgets, again):
        shuffle.shuffle(each)
    assert turns(nodes, budgets, again) == turns(NODES, BUDGETS, runs)


@given(rows=run_rows)
@settings(max_examples=30)
def test_world_rebuilt_from_facts_decides_the_same_as_the_original(rows: Rows) -> None:
    """Everything a decision needs is in the facts; only a refusal may be reported twice."""
    world = a_world(NODES, BUDGETS)
    for run in runs_of(rows):
        world.put_run(run)
    a_turn(world, NOW)
    world.put_node(replace(NODES[0], cordoned=True))
    again = rebuilt(world)
    again.bound = dict(world.bound)
    assert a_turn(again, NOW + 16 * MINUTE)[:2] == a_turn(world, NOW + 16 * MINUTE)[:2]
