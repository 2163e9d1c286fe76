"""Runs about which nothing is decided any more, and decisions that name the run they failed for."""

import pytest
from msgspec.structs import replace
from tests.properties.worlds import KEY, NOW, a_budget, a_lease, a_node, a_run, a_world

from leasehold.control.decide import decide
from leasehold.control.undecided import DecisionFailed
from leasehold.core.facts import Lease
from leasehold.core.units import HOUR
from leasehold.core.world.world import World


def a_world_with_one_lease() -> tuple[World, Lease]:
    world = a_world([a_node("n0")], [a_budget("t")])
    run = a_run("r", span=10 * HOUR)
    world.put_run(replace(run, seen_running=1))
    lease = a_lease(run, "n0", range(4), batch=0, index=0)
    world.fold_open(lease)
    return world, lease


def test_stop_request_of_a_run_that_is_left_alone_waits() -> None:
    world, lease = a_world_with_one_lease()
    stopped = replace(world.runs[lease.uid].spec, stop=True)
    world.put_run(replace(world.runs[lease.uid], spec=stopped))
    turn = decide(world, now=NOW, key=KEY, left_alone=frozenset({lease.uid}))
    assert not [batch for batch in turn.batches if batch.ending or batch.closed]
    world.work.look_at(lease.uid)
    turn = decide(world, now=NOW, key=KEY)
    assert [batch for batch in turn.batches if batch.ending or batch.closed]


def test_error_of_a_failed_decision_names_its_run() -> None:
    world, lease = a_world_with_one_lease()
    world.work.look_at(lease.uid)
    del world.books[lease.uid]  # a real World is never like this
    world.leases.pop(lease.name)
    with pytest.raises(DecisionFailed) as caught:
        decide(world, now=NOW, key=KEY)
    assert caught.value.about == lease.uid
