"""Runs that are alike share results; this changes no decision and no message, only the cost."""

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.properties.worlds import KEY, NOW, a_budget, a_node, a_run, a_world, an_envelope

from leasehold.control.decide import decide
from leasehold.control.turn import Turn
from leasehold.core.facts import Cause, Closure, Run, parse_why
from leasehold.core.policy import Policy
from leasehold.core.units import HOUR, MINUTE, SECOND
from leasehold.core.world.alike import EqualRuns, EqualRunsIndex
from leasehold.core.world.world import World


class Unlike(EqualRunsIndex):
    """Treats no run as like another."""

    def likeness(self, run: Run) -> EqualRuns:  # noqa: ARG002 - as `EqualRunsIndex` has it
        return EqualRuns()


EVENTS = st.sampled_from(["Completed", "NodeFailure", "Fail", ""])
# A kind of run: owner, GPUs, limit in hours.
KINDS = st.tuples(st.sampled_from("tu"), st.sampled_from([1, 2, 4]), st.sampled_from([None, 1, 3]))
# What an owner may use: GPUs at once, GPU-hours, and for how many hours.
Cap = tuple[int, int | None, int]
CAPS = st.tuples(
    st.integers(1, 9), st.sampled_from([None, None, 4, 12]), st.sampled_from([2, 9, 999])
)
POLICY = Policy(
    reservation_depth=4, reservation_depth_per_owner=2,
    reservation_money_depth=5, reservation_money_depth_per_owner=3, odds_seeds=2,
    activation_lead=MINUTE, patience=MINUTE, min_tenure=0,
)  # fmt: skip


def a_queue(kinds: list[tuple[str, int, int | None]], caps: list[Cap], *, nodes: int) -> World:
    budgets = [
        a_budget(
            owner,
            an_envelope(
                f"n/{owner}/e", owner, cap,
                end=NOW + window * HOUR, max_gpu_ms=None if hours is None else hours * HOUR,
            ),
        )
        for owner, (cap, hours, window) in zip("tu", caps, strict=True)
    ]  # fmt: skip
    world = a_world([a_node(f"n{i}", gpus=4) for i in range(nodes)], budgets, policy=POLICY)
    for index, (owner, gpus, hours) in enumerate(kinds):
        span = None if hours is None else hours * HOUR
        name = f"r{index:02}"
        run = a_run(
            name, owner, group_gpus=gpus, pod_gpus=gpus, span=span, created=NOW - 99 + index
        )
        world.put_run(replace(run, spec=replace(run.spec, checkpoint=HOUR, retries=9)))
    return world


def reported(world: World, turn: Turn) -> object:
    return (
        turn.batches,
        [(each.subject, each.reason, each.message) for each in turn.notices],
        {uid: each.essence for uid, each in world.memory.refusals.items()},
        dict(world.reservations),
    )


def play(world: World, events: list[tuple[str, int]]) -> list[object]:
    """Decide turn after turn; before each, a run ends, is requeued, or only time passes."""
    found, now = [], NOW
    for closure, number in [("", 0), *events]:
        now += SECOND if closure else 2 * MINUTE
        running = [name for name, lease in sorted(world.leases.items()) if lease.is_open]
        if closure and running:
            name = running[number % len(running)]
            cause = Cause.EXIT if closure == "Fail" else None
            why = parse_why(closure)
            world.fold_close(name, Closure(why=why, at=now, cause=cause, batch=world.head.seq))
        turn = decide(world, now=now, key=KEY)
        found.append(reported(world, turn))
        if turn.batches:
            world.head = replace(world.head, seq=turn.batches[-1].seq, instant=now)
    return found


@settings(max_examples=300)
@given(
    kinds=st.lists(KINDS, min_size=6, max_size=20),
    repeated=st.integers(1, 3),
    caps=st.lists(CAPS, min_size=2, max_size=2),
    nodes=st.integers(1, 2),
    events=st.lists(st.tuples(EVENTS, st.integers(0, 9)), max_size=5),
)
def test_reusing_answers_for_equal_runs_changes_no_decision_or_message(
    kinds: list[tuple[str, int, int | None]],
    repeated: int,
    caps: list[Cap],
    nodes: int,
    events: list[tuple[str, int]],
) -> None:
    queue = [kind for kind in kinds for _ in range(repeated)]
    shared, alone = a_queue(queue, caps, nodes=nodes), a_queue(queue, caps, nodes=nodes)
    alone.memory.alike = Unlike()
    assert play(shared, events) == play(alone, events)
