"""A Run that was stored before the limit on grace periods is ended within it, and not broken."""

import pytest
from tests.unit.shell.plant import Plant

from leasehold.core.names import Wire
from leasehold.core.objects.run import grace_problems
from leasehold.core.objects.wire import part
from leasehold.core.policy import Policy
from leasehold.core.units import HOUR, MINUTE, SECOND
from leasehold.sim.scenario.ledger import at_once, objects_of


def test_an_older_run_is_ended_within_the_limit() -> None:
    plant = Plant(policy=Policy(grace_max=MINUTE))
    plant.submit("a/one", runtime={"gracePeriod": "5h"})
    plant.wait(SECOND)
    (pod,) = objects_of(plant.store, "Pod")
    assert part(pod, "spec")["terminationGracePeriodSeconds"] == 60
    run = at_once(plant.store.get("Run", "a", "one"))
    part(run, "spec")["stop"] = True
    at_once(plant.store.update(run))
    plant.wait(SECOND)
    (lease,) = plant.world.leases.values()
    assert lease.ending is not None
    assert lease.ending.deadline - lease.ending.at == MINUTE


def test_the_published_limit() -> None:
    assert Policy().grace_max == HOUR


@pytest.mark.parametrize(
    ("runtime", "refused"),
    [
        ({"gracePeriod": "1m"}, False),
        ({"gracePeriod": "61s"}, True),
        ({"gracePeriod": "5h"}, True),
        ({}, False),  # the default is not the user's word; it is cut to the limit
        ({"gracePeriod": "soon"}, False),  # refused elsewhere, and once
    ],
)
def test_more_is_refused_by_path_with_the_remedy(runtime: Wire, refused: bool) -> None:
    problems = grace_problems({"kind": "Run", "spec": {"runtime": runtime}}, MINUTE)
    assert [path for path, _ in problems] == (["spec.runtime.gracePeriod"] if refused else [])
    assert all("use at most 1m (gracePeriod.max of this server)" in why for _, why in problems)


def test_the_default_is_no_mistake_where_less_is_allowed() -> None:
    assert grace_problems({"kind": "Run", "spec": {}}, SECOND) == []
