"""Alarms of runs: each wakes once, and not at all when it has lost its reason."""

from leasehold.core.units import FOREVER
from leasehold.core.world.worklist import Worklist


def test_an_alarm_is_due_once_however_often_it_was_set() -> None:
    work = Worklist()
    work.alarm("a", 5)
    work.alarm("a", 5)
    assert work.next_alarm == 5
    assert work.take_runs(5) == ["a"]
    assert work.next_alarm == FOREVER


def test_alarms_that_are_called_off_wake_nobody() -> None:
    work = Worklist()
    work.alarm("a", 5)
    work.alarm("b", 7)
    work.call_off("a")
    assert work.next_alarm == 7
    assert work.take_runs(4) == []
    work.alarm("a", 5)
    assert work.next_alarm == 5


def test_an_alarm_of_the_past_does_not_hide_those_to_come() -> None:
    work = Worklist()
    assert work.take_runs(6) == []
    work.alarm("a", 5)
    work.alarm("b", 7)
    assert work.next_alarm == 7
    assert work.take_runs(7) == ["a", "b"]
