"""pack, compared with brute force on small fleets: which domain, which node, all or nothing."""

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.properties.worlds import FLAVOR, a_node, a_world, occupy

from leasehold.core.placement.pack import fits, pack, pack_in_one_domain
from leasehold.core.requests import PlacementRequest
from leasehold.core.verdicts import Packed, PodPlace, Refusal, Refused
from leasehold.core.world.world import World

PLACES = [("r", "c"), ("r", "d")]
# fabric, cluster, GPUs, GPUs that foreign pods hold, pods that the node may carry
node_rows = st.lists(
    st.tuples(
        st.sampled_from("ab"),
        st.sampled_from("ccd"),
        st.sampled_from((4, 8)),
        st.integers(0, 8),
        st.sampled_from((110, 110, 110, 1, 2)),
    ),
    min_size=1,
    max_size=7,
)
wants = st.builds(
    PlacementRequest,
    flavor=st.just(FLAVOR),
    groups=st.integers(1, 3).map(lambda count: tuple(range(count))),
    pods=st.integers(1, 3),
    spares=st.integers(0, 1),
    pod_gpus=st.sampled_from((1, 2, 4, 8)),
    spread=st.booleans(),
    last=st.lists(st.sampled_from(("n0", "n1", "n2")), max_size=2).map(tuple),
)
Rows = list[tuple[str, str, int, int, int]]


class Model:
    """Per node: its domain, free GPUs, pods that it may still take, and whether it is empty."""

    def __init__(self, rows: Rows) -> None:
        self.domain = {f"n{i}": f"r/{row[1]}/{row[0]}" for i, row in enumerate(rows)}
        self.free = {f"n{i}": max(0, row[2] - row[3]) for i, row in enumerate(rows)}
        self.pods = {f"n{i}": row[4] - (row[3] > 0) for i, row in enumerate(rows)}
        self.empty = {f"n{i}": row[3] == 0 for i, row in enumerate(rows)}

    def room(self, domain: str, size: int) -> int:
        return sum(
            min(self.free[name] // size, self.pods[name])
            for name in self.domain
            if self.domain[name] == domain
        )

    def tightest(self, placement: PlacementRequest, groups: int) -> str | None:
        """Return the domain that can hold so many groups and will have the least left over."""
        needed = groups * (placement.pods + placement.spares)
        good = [
            (sum(self.free[n] for n in self.domain if self.domain[n] == domain), domain)
            for domain in set(self.domain.values())
            if self.room(domain, placement.pod_gpus) >= needed
        ]
        return min(good)[1] if good else None

    def put(
        self, placement: PlacementRequest, groups: tuple[int, ...], domain: str
    ) -> list[PodPlace]:
        """Prefer nodes in use, the least free, then by name; keep spares off their own pods."""
        placed = []
        for group in groups:
            actives: set[str] = set()
            for order in range(placement.pods + placement.spares):
                spare = order >= placement.pods
                beside = actives if spare else set()
                name = min(
                    (
                        name
                        for name in self.domain
                        if self.domain[name] == domain
                        and self.free[name] >= placement.pod_gpus
                        and self.pods[name]
                    ),
                    key=lambda each: (
                        each in placement.last,
                        each in beside,
                        self.empty[each],
                        self.free[each],
                        each,
                    ),
                )
                self.free[name] -= placement.pod_gpus
                self.pods[name] -= 1
                actives |= set() if spare else {name}
                index = order - placement.pods if spare else order
                placed.append(
                    PodPlace(
                        group=group, index=index, node=name, gpus=placement.pod_gpus, spare=spare
                    )
                )
        return placed

    def pack(self, placement: PlacementRequest) -> list[PodPlace] | None:
        whole = self.tightest(placement, len(placement.groups))
        if whole is not None:
            return self.put(placement, placement.groups, whole)
        placed = []
        for group in placement.groups if placement.spread else ():
            domain = self.tightest(placement, 1)
            if domain is None:
                return None
            placed += self.put(placement, (group,), domain)
        return placed or None


def a_fleet(rows: Rows) -> World:
    nodes = [
        replace(a_node(f"n{i}", row[0], gpus=row[2], cluster=row[1]), pods_max=row[4])
        for i, row in enumerate(rows)
    ]
    world = a_world(nodes)
    for i, row in enumerate(rows):
        if row[3]:
            occupy(world, f"n{i}", row[3])
    return world


@given(rows=node_rows, placement=wants)
@settings(max_examples=400)
def test_pack_places_pods_like_brute_force(rows: Rows, placement: PlacementRequest) -> None:
    world = a_fleet(rows)
    expected = Model(rows).pack(placement)
    answer = pack(world, placement, PLACES)
    if expected is None:
        assert isinstance(answer, Refused)
    else:
        assert isinstance(answer, Packed)
        assert list(answer.places) == expected
    assert fits(world, placement, PLACES) is (expected is not None)


@given(rows=node_rows, placement=wants)
@settings(max_examples=200)
def test_packed_groups_stay_in_one_domain_and_every_pod_is_placed(
    rows: Rows, placement: PlacementRequest
) -> None:
    world = a_fleet(rows)
    free = {name: state.free for name, state in world.fleet.nodes.items()}
    answer = pack(world, placement, PLACES)
    assert {name: state.free for name, state in world.fleet.nodes.items()} == free
    if isinstance(answer, Refused):
        assert answer.asked == placement.gpus
        total = sum(free.values())
        if answer.reason is Refusal.CAPACITY:
            assert answer.short_by == placement.gpus - total > 0
        else:
            assert answer.reason in (Refusal.NO_DOMAIN_FITS, Refusal.NODE_RESOURCES)
            assert total >= placement.gpus
            if answer.reason is Refusal.NO_DOMAIN_FITS:
                assert answer.limit == total
            else:  # these nodes are short of nothing but places for pods
                assert "no more pods fit" in answer.remedy
        return
    ranks = [(each.group, each.spare, each.index) for each in answer.places]
    assert ranks == [
        (group, spare, index)
        for group in placement.groups
        for spare, count in ((False, placement.pods), (True, placement.spares))
        for index in range(count)
    ]
    for each in answer.places:
        free[each.node] -= each.gpus
    assert min(free.values()) >= 0
    nodes = world.fleet.nodes
    domains = [{nodes[p.node].node.domain for p in answer.places if p.group == g}
               for g in placement.groups]  # fmt: skip
    assert all(len(each) == 1 for each in domains)
    used = set().union(*domains)
    assert placement.spread or len(used) == 1
    assert dict(answer.left_over) == {
        domain: sum(free[n] for n, s in nodes.items() if s.node.domain == domain) for domain in used
    }


@given(rows=node_rows, placement=wants, own=st.sampled_from(("r/c/a", "r/c/b", "r/d/a")))
@settings(max_examples=200)
def test_growth_is_placed_in_the_runs_own_domain_first(
    rows: Rows, placement: PlacementRequest, own: str
) -> None:
    """All of it in the run's own domain; otherwise group by group, own domain first."""
    answer = pack(a_fleet(rows), replace(placement, own_domains=(own,)), PLACES)
    model = Model(rows)
    per_group = placement.pods + placement.spares
    expected: list[PodPlace] | None
    if model.room(own, placement.pod_gpus) >= per_group * len(placement.groups):
        expected = model.put(placement, placement.groups, own)
    else:
        expected = []
        for group in placement.groups if placement.spread else ():
            here = model.room(own, placement.pod_gpus) >= per_group
            domain = own if here else model.tightest(placement, 1)
            if domain is None:
                expected = None
                break
            expected += model.put(placement, (group,), domain)
    placed = list(answer.places) if isinstance(answer, Packed) else None
    assert placed == (expected or None)


@given(rows=node_rows, placement=wants, fabric=st.sampled_from("ab"))
def test_pack_within_one_domain_ignores_all_other_domains(
    rows: Rows, placement: PlacementRequest, fabric: str
) -> None:
    """Asking for one domain equals packing a fleet that has no other."""
    inside = [f"n{i}" for i, row in enumerate(rows) if row[0] == fabric and row[1] == "c"]
    model = Model(rows)
    model.domain = {name: domain for name, domain in model.domain.items() if name in inside}
    expected = model.pack(placement)
    answer = pack(a_fleet(rows), replace(placement, within=(f"r/c/{fabric}",)), PLACES)
    assert (list(answer.places) if isinstance(answer, Packed) else None) == expected
    chosen = replace(placement, selector=replace(placement.selector, domain=fabric))
    again = pack_in_one_domain(a_fleet(rows), chosen, PLACES[:1])
    whole = expected is not None and len({model.domain[p.node] for p in expected}) == 1
    assert (list(again.places) if again else None) == (expected if whole else None)
