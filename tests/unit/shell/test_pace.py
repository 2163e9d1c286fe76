"""A busy loop decides less often if decisions are expensive; what is due is still done on time."""

from itertools import pairwise

import pytest
from tests.unit.shell.plant import Plant

from leasehold.control.turn import Turn
from leasehold.core.units import MINUTE, Instant, Millis
from leasehold.shell.loop.loop import REST, REST_MAX

GATHER: Millis = 10
EVERY: Millis = 4
CHANGES = 300


def turns_while_busy(*, gather: Millis, thinking: Millis) -> list[Instant]:
    turns: list[Instant] = []

    def note(turn: Turn) -> None:
        turns.append(turn.now)

    # Without a node no start is planned; planning would take time.
    plant = Plant(nodes=0, owners="a", gather=gather, thinking=thinking, on_turn=note)
    plant.wait(MINUTE)
    turns.clear()
    for index in range(CHANGES):
        plant.submit(f"a/r{index}")
        plant.wait(EVERY)
    found = list(turns)
    plant.wait(MINUTE)
    assert len(plant.views()) == CHANGES, "nobody is forgotten"
    return found


@pytest.mark.parametrize(
    ("thinking", "apart"),
    [(0, GATHER), (2, GATHER), (40, REST * 40), (400, REST_MAX)],
)
def test_busy_loop_rests_between_decisions_in_proportion_to_their_cost(
    thinking: Millis, apart: Millis
) -> None:
    turns = turns_while_busy(gather=GATHER, thinking=thinking)
    gaps = [later - earlier for earlier, later in pairwise(turns)]
    assert min(gaps) >= apart
    assert max(gaps) <= apart + EVERY


def test_loop_without_gather_time_decides_at_every_change() -> None:
    assert len(turns_while_busy(gather=0, thinking=40)) >= CHANGES


def test_time_limit_is_enforced_on_time_despite_slow_decisions() -> None:
    plant = Plant(owners="a", gather=GATHER, thinking=200)
    plant.submit("a/limited", runtime={"maxDuration": "5m", "gracePeriod": "0s"})
    plant.wait(MINUTE)
    plant.wait(4 * MINUTE)
    [lease] = plant.leases()
    assert lease.ending is not None
    assert lease.ending.at == lease.start + 5 * MINUTE
