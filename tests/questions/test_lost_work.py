"""The cost of failures: the work that was not saved, by a run's checkpoint interval."""

import pytest
from msgspec.structs import replace
from tests.properties.worlds import NOW, a_budget, a_lease, a_node, a_run, a_world

from leasehold.control.decide import decide
from leasehold.control.questions.answers.books import Uses
from leasehold.control.questions.report import Period, gpu_hours
from leasehold.core.facts import Lease, Pod, PodPhase
from leasehold.core.units import HOUR, MINUTE, Instant, Millis
from leasehold.core.world.world import World

GPUS = 4


def _world(checkpoint: Millis | None) -> tuple[World, Lease, Pod]:
    world, run = a_world([a_node("n0")], [a_budget("t")]), a_run("r")
    run = replace(run, spec=replace(run.spec, checkpoint=checkpoint))
    world.put_run(run)
    lease = a_lease(run, "n0", range(GPUS), batch=2, index=0, start=NOW)
    lease = replace(lease, attempt=1)
    world.fold_open(lease)
    pod = Pod(
        namespace=lease.namespace,
        name=lease.pod,
        node="n0",
        gpus=GPUS,
        uid="p",
        run_uid=run.uid,
        attempt=1,
        phase=PodPhase.RUNNING,
        began_at=NOW + 10 * MINUTE,
    )
    world.put_pod(pod)
    return world, lease, pod


def _ended(world: World, pod: Pod, code: int, at: Instant) -> Uses:
    phase = PodPhase.FAILED if code else PodPhase.SUCCEEDED
    world.put_pod(replace(pod, phase=phase, exit_code=code, finished_at=at))
    decide(
        world,
        now=at,
        key=b"",
        time_trusted=True,
        quarantined=frozenset(),
        left_alone=frozenset(),
    )
    found = gpu_hours(world, at, Period(start=NOW, end=at), by="owner")
    return found.total.uses


@pytest.mark.parametrize(
    ("checkpoint", "minutes"),
    [
        (None, (10, 0, 50)),  # starting, work, failed
        (15 * MINUTE, (10, 35, 15)),
        (49 * MINUTE, (10, 1, 49)),
        (50 * MINUTE, (10, 0, 50)),
        (2 * HOUR, (10, 0, 50)),
    ],
    ids=str,
)
def test_failure_costs_the_work_since_the_last_checkpoint(
    checkpoint: Millis | None, minutes: tuple[int, int, int]
) -> None:
    world, lease, pod = _world(checkpoint)
    uses = _ended(world, pod, 1, NOW + HOUR)
    found = (uses.starting.gpu_ms, uses.work.gpu_ms, uses.failed.gpu_ms)
    assert found == tuple(each * MINUTE * GPUS for each in minutes)
    closed = world.leases[lease.name].closed
    assert closed is not None
    assert (closed.saved is not None) == bool(minutes[1])


def test_successful_run_loses_no_work() -> None:
    world, lease, pod = _world(15 * MINUTE)
    uses = _ended(world, pod, 0, NOW + HOUR)
    assert uses.work.gpu_ms == 50 * MINUTE * GPUS
    closed = world.leases[lease.name].closed
    assert closed is not None
    assert closed.saved is None
