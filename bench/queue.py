"""Measures a turn with a long queue: one run ends, the next starts, and all others are
considered."""

from time import process_time

from bench.worlds import FLAVOR, NOW
from leasehold.control.decide import decide
from leasehold.control.turn import Turn
from leasehold.core.facts import (
    Budget,
    Closed,
    Closure,
    ClosureReason,
    Envelope,
    Node,
    Run,
    RunSpec,
)
from leasehold.core.ledger.head import Head
from leasehold.core.policy import Policy
from leasehold.core.units import HOUR, SECOND, Instant
from leasehold.core.world.alike import EqualRuns, EqualRunsIndex
from leasehold.core.world.world import World

TURNS = 6


class _Unlike(EqualRunsIndex):
    """For comparison: treats no two runs as equal, so that each run is considered by itself."""

    def likeness(self, run: Run) -> EqualRuns:  # noqa: ARG002 - as `EqualRunsIndex` has it
        return EqualRuns()


def turn_ms_apart(waiting: int, cap: int) -> float:
    """Return the same as `turn_ms`, but with each run considered by itself."""
    return turn_ms(waiting, cap, shared=False)


def turn_ms(waiting: int, cap: int, *, shared: bool = True) -> float:
    """Return the milliseconds of a turn with `waiting` equal one-GPU runs in the queue and eight
    runs running.

    `cap`: the number of GPUs for which the owner's budget may pay. If it is at most `waiting`, the
    fleet has 64 GPUs, so that the runs wait for budget; otherwise it has 8, so that they wait for
    GPUs. `shared` False: each run is considered by itself."""
    world = _world(waiting, cap, nodes=1 if cap > waiting else 8)
    if not shared:
        world.memory.alike = _Unlike()
    now = NOW
    _turn(world, now)
    spent = 0.0
    for _ in range(TURNS):
        now += SECOND
        running = next(name for name, lease in world.leases.items() if lease.is_open)
        done = Closure(why=ClosureReason(reason=Closed.COMPLETED), at=now, batch=world.head.seq)
        world.fold_close(running, done)
        began = process_time()
        _turn(world, now)
        spent += process_time() - began
    return spent / TURNS * 1000


def _turn(world: World, now: Instant) -> Turn:
    turn = decide(world, now=now, key=b"k")
    assert turn.batches, "one starts when one has ended"
    world.head = Head(seq=turn.batches[-1].seq, instant=now)
    return turn


def _world(waiting: int, cap: int, *, nodes: int) -> World:
    world = World(Policy())
    world.head = Head(seq=1, instant=NOW - 1)
    for index in range(nodes):
        world.put_node(
            Node(name=f"n{index}", flavor=FLAVOR, region="r", cluster="c", fabric="d", gpus=8)
        )
    envelope = Envelope(key="t/b/e", owner="org:t", flavor=FLAVOR, concurrency=cap)
    world.put_budget(
        Budget(namespace="t", name="b", owner="org:t", parents=(), envelopes=(envelope,))
    )
    spec = RunSpec(
        owner="org:t", flavor=FLAVOR, total_gpus=1, group_gpus=1, gpus_per_pod=1, max_duration=HOUR
    )
    for index in range(8 + waiting):
        world.put_run(
            Run(
                namespace="t",
                name=f"r{index:05}",
                uid=f"u{index:05}",
                created=NOW - 99_999 + index,
                spec=spec,
            )
        )
    return world
