"""Moments at which something may be decided for no other reason than that time has passed.

Leases without a limit use up GPU-hours. And the nearer a run's limit, or the end of its payer's
window, the fewer of them more of it costs: what nobody pays for now somebody pays for later. Found
by bisection: until the next thing happens it goes one way only.
"""

from collections.abc import Callable

from tests.model.line import in_line, what_it_lacks
from tests.model.resize import growth, resizable
from tests.model.story import FOREVER
from tests.model.world import Envelope, Run, World

Question = Callable[[World, Run], object]


def next_moment(world: World, before: int) -> int:
    """The first before the next known instant, else that one."""
    if before == FOREVER or not any(_caps_hours(each) for each in world.envelopes()):
        return before
    found = [before]
    found += [_first(world, run, _grows, before) for run in resizable(world)]
    found += [_first(world, run, what_it_lacks, before) for run in in_line(world) if _waits(run)]
    return min(found)


def _caps_hours(envelope: Envelope) -> bool:
    return envelope.hours is not None or envelope.lends_hours is not None


def _grows(world: World, run: Run) -> bool:
    return growth(world, run) is not None


def _waits(run: Run) -> bool:
    return run.activation is None and not run.stop


def _first(world: World, run: Run, question: Question, before: int) -> int:
    """When the answer is no longer what it is now."""
    low, high = world.now, before - 1
    today = question(world, run)
    if high <= low or _at(world, run, question, high) == today:
        return before
    while high - low > 1:
        middle = (low + high) // 2
        same = _at(world, run, question, middle) == today
        low, high = (middle, high) if same else (low, middle)
    return high


def _at(world: World, run: Run, question: Question, at: int) -> object:
    now, world.now = world.now, at
    answer = question(world, run)
    world.now = now
    return answer
