"""The controller dies at each of its calls; its successor reaches the same outcome."""

from collections.abc import Callable
from itertools import count

import pytest
from msgspec.structs import replace
from tests.unit.shell.plant import SOON, Plant

from leasehold.core.units import MINUTE

SMALL = 2_000  # bytes of a batch: room for a lease, or for a few endings
Story = Callable[[Plant], None]
ELASTIC = {"minTotalGPUs": 4, "maxTotalGPUs": 8, "stepGPUs": 4, "desiredTotalGPUs": 8}


def a_gang_binds_and_another_ends(plant: Plant) -> None:
    plant.submit("a/gang", resources={"gpuType": "H", "totalGPUs": 12, "gpusPerPod": 4})
    plant.submit("b/short", lasts=MINUTE, resources={"gpuType": "H", "totalGPUs": 4})
    plant.wait(2 * MINUTE)


def a_resolution_starts_a_run(plant: Plant) -> None:
    """One run gives up a group, another is drawn, and the beneficiary binds on their nodes."""
    plant.submit("a/fixed")
    plant.submit("a/wide", resources={"gpuType": "H", "totalGPUs": 8, "gpusPerPod": 4},
                 locality={"groupGPUs": 4}, malleable=ELASTIC)  # fmt: skip
    plant.wait(MINUTE)
    plant.submit("b/big", resources={"gpuType": "H", "totalGPUs": 16, "gpusPerPod": 4},
                 locality={"groupGPUs": 4})  # fmt: skip
    plant.wait(20 * MINUTE)


def eight_runs_start(plant: Plant) -> None:
    for index in range(8):
        plant.submit(f"a/r{index}", resources={"gpuType": "H", "totalGPUs": 1})
    plant.wait(MINUTE)


def a_resolution_ends_eight_runs(plant: Plant) -> None:
    """Preempt more victims than fit in a batch: first a Resolution, then batches that end them."""
    plant.submit("b/big", resources={"gpuType": "H", "totalGPUs": 8})
    plant.wait(16 * MINUTE)


def outcome(plant: Plant) -> object:
    """Return the state of each run and the facts of each lease; names and seeds may differ."""
    leases = [
        (each.run, each.attempt, each.group, each.index, each.node, each.slots, each.payer,
         each.start, each.end, "" if each.closed is None else each.closed.why.reason)
        for each in plant.leases()
    ]  # fmt: skip
    return plant.views(), sorted(leases, key=str)


@pytest.mark.parametrize("is_shared", [False, True], ids=["alone", "among others"])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(
    ("story", "nodes"), [(a_gang_binds_and_another_ends, 2), (a_resolution_starts_a_run, 2)]
)
def test_death_of_controller_at_any_call_leads_to_same_outcome(
    story: Story, nodes: int, after: bool, is_shared: bool
) -> None:
    undisturbed = Plant(nodes=nodes, is_shared=is_shared)
    story(undisturbed)
    expected, calls = outcome(undisturbed), undisturbed.doomed.calls
    assert undisturbed.problems() == []
    assert calls > 30
    for fatal in count(1):
        plant = Plant(nodes=nodes, fatal=fatal, after=after, is_shared=is_shared)
        story(plant)
        if plant.control.incarnation == 0:
            break
        assert plant.problems() == [], fatal
        assert outcome(plant) == expected, fatal
    assert fatal == calls + 1


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_death_between_batches_of_a_resolution_leads_to_same_outcome(after: bool) -> None:
    policy = replace(SOON, batch_bytes_max=SMALL)
    undisturbed = Plant(nodes=1, policy=policy)
    eight_runs_start(undisturbed)
    first = undisturbed.doomed.calls + 1
    a_resolution_ends_eight_runs(undisturbed)
    expected, last = outcome(undisturbed), undisturbed.doomed.calls
    victims = [each for each in undisturbed.leases() if each.run != "big"]
    assert {each.closed.why.reason for each in victims if each.closed} == {"RandomPreempt"}
    assert len({each.ending.batch for each in victims if each.ending is not None}) > 1
    for fatal in range(first, last + 1):
        plant = Plant(nodes=1, policy=policy, fatal=fatal, after=after)
        eight_runs_start(plant)
        a_resolution_ends_eight_runs(plant)
        assert plant.control.incarnation == 1
        assert plant.problems() == [], fatal
        assert outcome(plant) == expected, fatal


def test_story_of_a_resolution_preempts_two_runs_and_starts_a_third() -> None:
    plant = Plant()
    a_resolution_starts_a_run(plant)
    assert plant.views() == {
        "a/fixed": ("Failed", "RandomPreempt", 0),
        "a/wide": ("Failed", "RandomPreempt", 0),
        "b/big": ("Running", "Running", 16),
    }
