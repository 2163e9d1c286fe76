"""A pass that keeps standing plans decides the same as a pass that considers every run (Q7)."""

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.properties.worlds import KEY, NOW, a_budget, a_node, a_run, a_world, an_envelope

from leasehold.control.decide import decide
from leasehold.core.facts import Closed, Closure, ClosureReason
from leasehold.core.policy import Policy
from leasehold.core.units import HOUR, MINUTE
from leasehold.core.world.world import World

# A run: owner, pods, GPUs of each, limit in hours.
Kind = tuple[str, int, int, int | None]
KINDS = st.tuples(
    st.sampled_from("tu"),
    st.sampled_from([1, 1, 2, 3]),
    st.sampled_from([1, 2, 4, 8]),
    st.sampled_from([None, 1, 2, 5]),
)
# What happens: a lease ends (by its number), a run comes, or time passes (in minutes).
EVENTS = st.one_of(
    st.tuples(st.just("ends"), st.integers(0, 99)),
    st.tuples(st.just("comes"), KINDS),
    st.tuples(st.just("passes"), st.sampled_from([1, 29, 60, 95])),
)
CAPS = st.tuples(st.integers(4, 40), st.sampled_from([None, 10, 60, 40_000]))
POLICY = Policy(
    reservation_depth=6, reservation_depth_per_owner=4, reservation_money_depth=4,
    reservation_money_depth_per_owner=3, odds_seeds=2, patience=3 * HOUR, min_tenure=0,
)  # fmt: skip


def a_fleet(caps: list[tuple[int, int | None]], *, nodes: int) -> World:
    budgets = [
        a_budget(
            owner,
            an_envelope(
                f"n/{owner}/e", owner, cap, max_gpu_ms=None if hours is None else hours * HOUR
            ),
        )
        for owner, (cap, hours) in zip("tu", caps, strict=True)
    ]
    fleet = [a_node(f"n{i}", "abc"[i % 3], gpus=8) for i in range(nodes)]
    return a_world(fleet, budgets, policy=POLICY)


def submit(world: World, kind: Kind, number: int, now: int) -> None:
    owner, pods, gpus, hours = kind
    run = a_run(
        f"r{number:02}", owner, group_gpus=gpus * pods, pod_gpus=gpus,
        span=None if hours is None else hours * HOUR, created=now,
    )  # fmt: skip
    world.put_run(replace(run, spec=replace(run.spec, checkpoint=HOUR, retries=9), number=number))


def play(world: World, kinds: list[Kind], events: list[object], *, is_strict: bool) -> list[object]:
    found: list[object] = []
    for number, kind in enumerate(kinds):
        submit(world, kind, number, NOW)
    now, number = NOW, len(kinds)
    for event in [("passes", 0), *events]:
        match event:
            case ("ends", int(which)):
                now += MINUTE
                running = [name for name, lease in sorted(world.leases.items()) if lease.is_open]
                if running:
                    name = running[which % len(running)]
                    why = world.leases[name].ending
                    reason = why.why if why is not None else ClosureReason(reason=Closed.COMPLETED)
                    world.fold_close(name, Closure(why=reason, at=now, batch=world.head.seq))
            case ("comes", (str(), int(), int(), _) as kind):
                submit(world, kind, number, now)
                number += 1
            case ("passes", int(minutes)):
                now += minutes * MINUTE
        for _ in range(9):
            turn = decide(world, now=now, key=KEY, is_strict=is_strict)
            found.append((turn.batches, dict(world.reservations), turn.wake_at))
            if turn.batches:
                world.head = replace(world.head, seq=turn.batches[-1].seq, instant=now)
            if not turn.again:
                break
    return found


@settings(max_examples=800, deadline=None)
@given(
    kinds=st.lists(KINDS, min_size=4, max_size=30),
    caps=st.lists(CAPS, min_size=2, max_size=2),
    nodes=st.integers(2, 7),
    events=st.lists(EVENTS, min_size=2, max_size=12),
)
def test_plans_kept_between_turns_equal_plans_of_considering_every_run_again(
    kinds: list[Kind],
    caps: list[tuple[int, int | None]],
    nodes: int,
    events: list[object],
) -> None:
    kept = play(a_fleet(caps, nodes=nodes), kinds, events, is_strict=False)
    considered = play(a_fleet(caps, nodes=nodes), kinds, events, is_strict=True)
    assert kept == considered
