"""Measures the start of mixed gangs on a fleet that is two thirds full.

A start is admission, binding, and the check of the invariants that it can break.
"""

from time import process_time

from msgspec.structs import replace

from bench.worlds import NOW, empty_world, fill, mixed_runs
from leasehold.control.scheduling.requests import next_attempts, start_request_for
from leasehold.control.turn import Turn
from leasehold.core.admission.admit import admit
from leasehold.core.facts import Closed, Opened, Run
from leasehold.core.units import SECOND
from leasehold.core.verdicts import Admitted
from leasehold.core.world.invariants import Touched, check_delta
from leasehold.core.world.world import World

_BUSY_MAX = 12_000  # GPUs of measured runs; above it, the oldest are ended


def measure(nodes: int, leases: int, count: int) -> tuple[float, int, int]:
    """Return how many runs were started per CPU second, their GPUs, and how many runs were
    refused."""
    return admit_all(prepare(nodes, leases), count)


def prepare(nodes: int, leases: int) -> World:
    world = empty_world(nodes)
    fill(world, leases=leases, of_each_ten=7)
    return world


def admit_all(world: World, count: int) -> tuple[float, int, int]:
    """Start `count` mixed gangs, and end the oldest ones when too many GPUs are taken. Return the
    same as `measure`."""
    spent, gpus, refused = 0.0, 0, 0
    alive: list[tuple[Run, list[str]]] = []
    busy = 0
    runs = mixed_runs(count)
    for step, run in enumerate(runs):
        world.put_run(run)
        turn = Turn(world, now=NOW + step * SECOND, key=b"k", time_trusted=True)
        began = process_time()
        opened = _start(world, turn, run)
        spent += process_time() - began
        if opened is None:
            refused += 1
            continue
        gpus += run.spec.total_gpus
        busy += run.spec.total_gpus
        alive.append((run, opened))
        _advance(world)
        while busy > _BUSY_MAX:
            ended, names = alive.pop(0)
            busy -= ended.spec.total_gpus
            turn = Turn(world, now=NOW + step * SECOND, key=b"k", time_trusted=True)
            for name in names:
                turn.close(name, end=turn.now, why=Closed.COMPLETED)
            _advance(world)
    return (count - refused) / spent, gpus, refused


def _start(world: World, turn: Turn, run: Run) -> list[str] | None:
    groups = tuple(range(run.spec.total_gpus // run.spec.group_gpus))
    request = start_request_for(world, run, groups)
    plan = admit(world, request, turn.calendar, start=turn.now, now=turn.now)
    if not isinstance(plan, Admitted):
        return None
    attempts = next_attempts(world, run, groups)
    opened = turn.start(run, plan, attempts=attempts, reason=Opened.START)
    assert isinstance(opened, list)
    broken = check_delta(world, Touched(opened=tuple(opened)), turn.now)
    assert not broken, broken
    return [lease.name for lease in opened]


def _advance(world: World) -> None:
    world.head = replace(world.head, seq=world.head.seq + 1)
    world.work.runs.clear()
    world.work.take_budgets()
