"""After a clock jump nothing time-driven happens until the clock agrees; time never goes back."""

import pytest
from tests.unit.shell.plant import START, Plant

from leasehold.core.units import HOUR, MINUTE, SECOND, Millis
from leasehold.sim.scenario.ledger import ledger_lines

LIMIT = {"maxDuration": "30m"}


def instants(plant: Plant) -> list[int]:
    batches = [line["batch"] for line in ledger_lines(plant.store)]
    return [int(each["instant"]) for each in batches if isinstance(each, dict)]


def jumped(by: Millis) -> Plant:
    """Start a run with a limit of 30 minutes; let the controller's clock jump after ten."""
    plant = Plant()
    plant.submit("a/limited", runtime=LIMIT)
    plant.wait(10 * MINUTE)
    plant.control.clock.jump(by)
    plant.submit("b/other", lasts=MINUTE)  # events are still processed
    plant.wait(5 * MINUTE)
    return plant


@pytest.mark.parametrize("by", [HOUR, -HOUR], ids=["forward", "back"])
def test_clock_jump_raises_one_alert_and_suspends_time_limits(by: Millis) -> None:
    plant = jumped(by)
    assert [each for each in plant.told if each.startswith("alert: the clock jumped")] == [
        f"alert: the clock jumped by {by} ms; nothing that depends on the time is done until "
        "the clock agrees again"
    ]
    assert plant.view("a/limited").phase == "Running"
    assert plant.view("b/other").phase == "Completed"
    plant.wait(20 * MINUTE)
    assert plant.view("a/limited").phase == "Running", "its limit passed while nobody knew when"
    told = instants(plant)
    assert told == sorted(told)
    assert told[0] >= START
    assert told[-1] <= plant.kernel.now
    assert plant.problems() == []


@pytest.mark.parametrize("by", [HOUR, -HOUR], ids=["forward", "back"])
def test_time_limit_is_enforced_once_the_clock_agrees_again(by: Millis) -> None:
    plant = jumped(by)
    plant.wait(20 * MINUTE)
    plant.control.clock.jump(-by)
    plant.submit("b/wakes")
    plant.wait(MINUTE)
    assert plant.view("a/limited").because == "TimeLimit"
    assert plant.view("b/wakes").phase == "Running"
    told = instants(plant)
    assert told == sorted(told)
    assert plant.problems() == []


@pytest.mark.parametrize("by", [HOUR, -HOUR], ids=["forward", "back"])
def test_controller_notices_without_an_event_that_the_clock_agrees_again(by: Millis) -> None:
    plant = jumped(by)
    plant.wait(20 * MINUTE)
    plant.control.clock.jump(-by)
    plant.wait(MINUTE)
    assert plant.view("a/limited").because == "TimeLimit"


@pytest.mark.parametrize("by", [4 * SECOND, -4 * SECOND])
def test_small_clock_correction_is_not_a_jump(by: Millis) -> None:
    plant = jumped(by)
    assert not [each for each in plant.told if "jumped" in each]
    plant.wait(20 * MINUTE)
    assert plant.view("a/limited").because == "TimeLimit"
    assert plant.problems() == []
