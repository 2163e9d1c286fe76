"""A Run stored before grace periods had a limit is ended within the limit, and stays valid."""

import pytest
from tests.unit.shell.plant import Plant

from leasehold.core.names import Wire
from leasehold.core.objects.run import grace_problems
from leasehold.core.objects.wire import part
from leasehold.core.policy import Policy
from leasehold.core.units import HOUR, MINUTE, SECOND
from leasehold.sim.scenario.ledger import at_once, objects_of


def test_older_run_is_ended_within_the_limit_on_grace_periods() -> None:
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


def test_default_limit_on_grace_periods_is_one_hour() -> None:
    assert Policy().grace_max == HOUR


@pytest.mark.parametrize(
    ("runtime", "refused"),
    [
        ({"gracePeriod": "1m"}, False),
        ({"gracePeriod": "61s"}, True),
        ({"gracePeriod": "5h"}, True),
        ({}, False),  # the user did not write the default; it is shortened to the limit
        ({"gracePeriod": "soon"}, False),  # another rule refuses it
    ],
)
def test_grace_period_above_the_limit_is_refused_with_path_and_remedy(
    runtime: Wire, refused: bool
) -> None:
    problems = grace_problems({"kind": "Run", "spec": {"runtime": runtime}}, MINUTE)
    assert [path for path, _ in problems] == (["spec.runtime.gracePeriod"] if refused else [])
    assert all("use at most 1m (gracePeriod.max of this server)" in why for _, why in problems)


def test_default_grace_period_above_the_limit_is_not_refused() -> None:
    assert grace_problems({"kind": "Run", "spec": {}}, SECOND) == []
