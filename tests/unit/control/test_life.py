"""The phase of a run follows from how its attempts ended: for which cause, and how often."""

import pytest
from msgspec.structs import replace
from tests.properties.worlds import NOW, a_budget, a_lease, a_node, a_run, a_world

from leasehold.control.running.life import backoff, phase_of, units_of
from leasehold.core.facts import Cause, Closure, parse_why
from leasehold.core.units import MINUTE, SECOND
from leasehold.core.world.book import WHOLE
from leasehold.core.world.world import World


def a_world_after(closures: list[str], *, retries: int, checkpoint: int | None) -> World:
    """Return a World with one attempt per closure; `Fail/Exit` is a reason and its cause."""
    run = a_run("r")
    run = replace(run, spec=replace(run.spec, retries=retries, checkpoint=checkpoint))
    world = a_world([a_node("n0")], [a_budget("t")])
    world.put_run(run)
    for number, said in enumerate(closures, start=1):
        closure, _, cause = said.partition("/")
        lease = a_lease(run, "n0", range(4), batch=2 * number, index=0, start=NOW)
        world.fold_open(replace(lease, attempt=number))
        blamed = Cause(cause) if cause else None
        done = Closure(why=parse_why(closure), at=NOW, cause=blamed, batch=2 * number + 1)
        world.fold_close(lease.name, done)
    return world


EXIT, REJECTED, REFUSED, DELETED = "Fail/Exit", "Fail/Rejected", "Fail/Refused", "Fail/Deleted"
# how its attempts ended     retries  checkpoint  phase and why           pause in seconds
STANDINGS = [
    ([], 0, None, ("Pending", ""), 0),
    (["Completed"], 0, None, ("Completed", ""), 0),
    ([EXIT], 0, None, ("Failed", "WorkloadFailed"), 0),
    ([EXIT], 1, None, ("Pending", ""), 30),
    ([EXIT, EXIT], 2, None, ("Pending", ""), 60),
    ([EXIT, EXIT], 1, None, ("Failed", "WorkloadFailed"), 0),
    ([REJECTED, EXIT], 1, None, ("Pending", ""), 30),
    ([REJECTED, REJECTED], 0, None, ("Pending", ""), 20),
    ([REFUSED], 0, None, ("Pending", ""), 10),
    ([REJECTED] * 5, 0, None, ("Pending", ""), 3600),
    ([DELETED], 0, None, ("Failed", "NodeFailure"), 0),
    ([DELETED], 0, 60, ("Pending", ""), 0),
    (["NodeFailure"], 3, None, ("Failed", "NodeFailure"), 0),
    (["NodeFailure"], 0, 60, ("Pending", ""), 0),
    (["ReclaimedBySpare"], 0, None, ("Failed", "ReclaimedBySpare"), 0),
    (["ReclaimedBySpare"], 0, 60, ("Pending", ""), 0),
    (["RandomPreempt(ab)"], 0, None, ("Failed", "RandomPreempt"), 0),
    (["TimeLimit"], 3, 60, ("Failed", "TimeLimit"), 0),
    (["Canceled"], 3, 60, ("Failed", "Canceled"), 0),
    (["Shrink"], 0, None, ("Pending", ""), 0),
]


@pytest.mark.parametrize(("closures", "retries", "checkpoint", "phase", "pause"), STANDINGS)
def test_phase_and_pause_of_run_follow_from_ended_attempts(
    closures: list[str],
    retries: int,
    checkpoint: int | None,
    phase: tuple[str, str],
    pause: int,
) -> None:
    world = a_world_after(closures, retries=retries, checkpoint=checkpoint)
    run = world.runs["uid-r"]
    assert phase_of(world, run) == phase
    where = units_of(world, run)[WHOLE]
    assert where.retry_at == (NOW + pause * SECOND if pause else 0)


def test_stopped_run_does_not_wait_for_a_retry() -> None:
    world = a_world_after([EXIT], retries=3, checkpoint=None)
    run = world.runs["uid-r"]
    world.put_run(replace(run, spec=replace(run.spec, stop=True)))
    assert phase_of(world, world.runs["uid-r"]) == ("Failed", "Canceled")


def test_pauses_between_retries_double_up_to_the_maximum() -> None:
    pauses = [backoff(10 * SECOND, MINUTE, count) for count in (1, 2, 3, 4, 99)]
    assert pauses == [10 * SECOND, 20 * SECOND, 40 * SECOND, MINUTE, MINUTE]
