"""What one event costs while many different runs wait on a full fleet."""

from time import process_time

from bench.plans import full_world
from bench.worlds import NOW, make_run, mixed_runs, owners
from leasehold.control.decide import decide
from leasehold.control.turn import Turn
from leasehold.core.facts import Closed, Closure, ClosureReason
from leasehold.core.ledger.head import Head
from leasehold.core.units import HOUR, MINUTE, SECOND, Instant
from leasehold.core.world.world import World

EVENTS = 5  # of each kind; the mean is reported
LIMITS = 7  # different limits among the waiting runs


def measure(nodes: int, waiting: int) -> tuple[float, float, float]:
    """Return the CPU seconds of the first planning of `waiting` different runs, the milliseconds of
    an event in which a one-GPU lease ends and no run can start, and of one in which a run starts.

    An event costs all its turns, until nothing more is decided.
    """
    world = full_world(nodes, limit=12 * HOUR)
    for index, run in enumerate(mixed_runs(waiting, seed=11)):
        gpus = max(8, run.spec.total_gpus)
        limit = (2 + index % LIMITS) * HOUR + index * SECOND  # no two runs have the same limit
        world.put_run(make_run(index, run.spec.owner, gpus, max_duration=limit, elastic=False))
    first = _settle(world, NOW)
    now = NOW
    ended = 0.0
    singles = iter(sorted(name for name, x in world.leases.items() if x.is_open and x.gpus == 1))
    for _ in range(EVENTS):
        now += SECOND
        _end(world, next(singles), now)
        ended += _settle(world, now)
    teams = [owner for owner in owners() if owner.count(":") == 3]
    started = 0.0
    for number in range(EVENTS):
        small = make_run(9_000_000 + number, teams[number], 1, max_duration=MINUTE, elastic=False)
        world.put_run(small)
        now += SECOND
        started += _settle(world, now)
        assert world.open_by_run.get(small.uid), "it passes those that wait"
    return first, ended / EVENTS * 1000, started / EVENTS * 1000


def _end(world: World, name: str, now: Instant) -> None:
    done = Closure(why=ClosureReason(reason=Closed.COMPLETED), at=now, batch=world.head.seq)
    world.fold_close(name, done)


def _settle(world: World, now: Instant) -> float:
    """Return the CPU seconds of the turns until nothing more is decided."""
    spent = 0.0
    while True:
        began = process_time()
        turn: Turn = decide(world, now=now, key=b"k")
        spent += process_time() - began
        if turn.batches:
            world.head = Head(seq=turn.batches[-1].seq, instant=now)
        if not turn.again:
            return spent
