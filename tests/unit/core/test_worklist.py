"""Alarms of runs: each wakes its run once, and not at all after it was called off."""

from leasehold.core.units import FOREVER
from leasehold.core.world.worklist import Worklist


def test_alarm_that_was_set_twice_is_due_once() -> None:
    work = Worklist()
    work.alarm("a", 5)
    work.alarm("a", 5)
    assert work.next_alarm == 5
    assert work.take_runs(5) == ["a"]
    assert work.next_alarm == FOREVER


def test_called_off_alarm_wakes_no_run() -> None:
    work = Worklist()
    work.alarm("a", 5)
    work.alarm("b", 7)
    work.call_off("a")
    assert work.next_alarm == 7
    assert work.take_runs(4) == []
    work.alarm("a", 5)
    assert work.next_alarm == 5


def test_alarm_in_the_past_does_not_hide_later_alarms() -> None:
    work = Worklist()
    assert work.take_runs(6) == []
    work.alarm("a", 5)
    work.alarm("b", 7)
    assert work.next_alarm == 7
    assert work.take_runs(7) == ["a", "b"]
