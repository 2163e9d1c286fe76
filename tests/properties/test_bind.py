"""bind against a list with one row per GPU: its pod, its slot, its payer."""

from itertools import groupby

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.properties.worlds import NOW, a_lease, a_node, a_run, a_world

from leasehold.core.facts import Opened, Relation, Role
from leasehold.core.placement.bind import bind, deal_slots
from leasehold.core.verdicts import Admitted, Covered, Packed, PodPlace, Segment
from leasehold.core.world.world import World

PLACES = {"c": ("r", "c"), "d": ("r", "d")}
# cluster of the node, slots of it that are taken
node_rows = st.lists(
    st.tuples(st.sampled_from("cd"), st.sets(st.integers(0, 15), max_size=8)),
    min_size=1,
    max_size=4,
)
# group, GPUs, whether it is a spare
pod_rows = st.lists(
    st.tuples(st.integers(0, 2), st.integers(1, 4), st.booleans()), min_size=1, max_size=8
)
cuts = st.lists(st.integers(1, 6), max_size=8)  # how much each payer gives, the last the rest


def a_fleet(rows: list[tuple[str, set[int]]], role: Role) -> World:
    world = a_world(a_node(f"n{i}", gpus=16, cluster=row[0]) for i, row in enumerate(rows))
    old = a_run("old")
    world.put_run(old)
    for i, (_, slots) in enumerate(rows):
        if slots:
            world.fold_open(a_lease(old, f"n{i}", slots, batch=1, index=i, pod=i, role=role))
    return world


def places_of(rows: list[tuple[int, int, bool]], room: dict[str, int]) -> list[PodPlace]:
    """The pods on the first node that has room, in the order in which pack names them."""
    placed: list[PodPlace] = []
    for group, gpus, spare in sorted(rows, key=lambda row: (row[0], row[2])):
        node = next((name for name in sorted(room) if room[name] >= gpus), None)
        if node is not None:
            room[node] -= gpus
            index = sum(1 for each in placed if (each.group, each.spare) == (group, spare))
            placed.append(PodPlace(group=group, index=index, node=node, gpus=gpus, spare=spare))
    return placed


def segments_of(gpus: int, shares: list[int]) -> list[Segment]:
    segments: list[Segment] = []
    relations = list(Relation)
    while gpus:
        share = min(gpus, shares[len(segments)] if len(segments) < len(shares) else gpus)
        segments.append(
            Segment(
                envelope=f"n/b/e{len(segments)}",
                owner=f"o{len(segments)}",
                gpus=share,
                relation=relations[len(segments) % 3],
            )
        )
        gpus -= share
    return segments


@given(nodes=node_rows, pods=pod_rows, shares=cuts, first=st.integers(0, 3))
@settings(max_examples=300)
def test_every_gpu_of_every_pod_is_paid_once_in_the_order_of_the_walk(
    nodes: list[tuple[str, set[int]]],
    pods: list[tuple[int, int, bool]],
    shares: list[int],
    first: int,
) -> None:
    world = a_fleet(nodes, Role.ACTIVE)
    fleet = world.fleet
    places = places_of(pods, {name: state.free for name, state in fleet.nodes.items()})
    cluster = {f"n{i}": row[0] for i, row in enumerate(nodes)}
    segments = {
        c: segments_of(sum(p.gpus for p in places if cluster[p.node] == c), shares) for c in "cd"
    }
    plan = Admitted(
        covered=tuple(
            (PLACES[c], Covered(segments=tuple(found), trace=()))
            for c, found in segments.items()
            if found
        ),
        packed=Packed(places=tuple(places)),
    )
    leases = bind(
        a_run("new"), plan, deal_slots(fleet, places), fleet=fleet,
        attempts={0: 1, 1: 2, 2: 3}, reason=Opened.START, batch=7, first_index=first, now=NOW,
    )  # fmt: skip

    left = {c: [(s.envelope, s.relation) for s in found for _ in range(s.gpus)]
            for c, found in segments.items()}  # fmt: skip
    taken = {f"n{i}": set(row[1]) for i, row in enumerate(nodes)}
    rows = []
    for place in places:
        for _ in range(place.gpus):
            slot = min(set(range(16)) - taken[place.node])
            taken[place.node].add(slot)
            rows.append((place, left[cluster[place.node]].pop(0), slot))
    expected = [
        (pod.group, pod.index, pod.spare, pod.node, payer, tuple(slot for _, _, slot in mine))
        for (pod, payer), mine in groupby(rows, key=lambda row: (row[0], row[1]))
    ]
    assert [
        (each.group, each.index, each.role is Role.SPARE, each.node,
         (each.payer, each.relation), each.slots)
        for each in leases
    ] == expected  # fmt: skip
    assert not any(left.values())
    assert [each.name for each in leases] == [f"new-7-{first + i}" for i in range(len(leases))]
    assert all(each.attempt == each.group + 1 for each in leases)
    assert all((each.pod == "") is (each.role is Role.SPARE) for each in leases)
