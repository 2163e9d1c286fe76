"""Three real control planes on one real file: killed, stopped during a commit, or with a clock
that is set back. No batch is committed twice, and one of them always continues to decide."""

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.processes.house import GPUS, NODES, House
from tests.processes.member import MARGINS

from leasehold.sim.faults.checks import LeaderChange

ALL = NODES * GPUS


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    folder = tmp_path / "data"
    folder.mkdir(mode=0o700)
    made = House(folder)
    yield made
    made.stop()


def _ended_well(house: House) -> list[LeaderChange]:
    for member in house.members.values():
        assert member.end() in (0, -signal.SIGKILL), member.lines()[-5:]
    followed = house.judge()
    for epoch, name, took in house.take_overs():
        print(f"epoch {epoch}: {name} leads, {took} ms after the previous leader ended")
    return followed


def test_terminated_leader_hands_over_to_standby(house: House) -> None:
    house.start_all("a", "b", "c")
    house.until_completed(house.submit(ALL))
    assert house.members["a"].end() == 0
    house.until(lambda: house.holder() in ("b", "c"))
    house.until_completed(house.submit(ALL))
    assert _ended_well(house)[0].handed_over


def test_repeatedly_killed_leader_is_followed_by_standby(house: House) -> None:
    """The leader is killed twice while runs are pending, and restarted each time."""
    house.start_all("a", "b", "c")
    names = []
    for _ in range(2):
        leader = house.holder()
        names += [house.submit(GPUS, lasts_ms=1) for _ in range(6)]
        house.members[leader].kill()
        names += [house.submit(ALL, lasts_ms=1)]
        house.until(lambda leader=leader: house.holder() not in ("", leader))
        house.start(leader)
        house.until_completed(*names)
    assert house.epoch() >= 3
    _ended_well(house)


@pytest.mark.parametrize(
    "point", ["after create LedgerBatch", "before update LedgerHead", "after update LedgerHead"]
)
def test_leader_stopped_in_a_commit_loses_tenure_and_commits_no_more(
    house: House, point: str
) -> None:
    """The leader stays stopped past its tenure; when it continues, another process leads."""
    house.start_all("a", "b", "c", first=("--stop-at", point))
    stopped = house.members["a"]
    first = house.submit(ALL)
    house.until(lambda: stopped.has_logged("stopped"))
    house.until(lambda: house.holder() in ("b", "c"))
    house.until_completed(first, house.submit(GPUS))
    stopped.send(signal.SIGCONT)
    house.until(lambda: stopped.has_logged("lost"))
    words = [each.words for each in stopped.lines()]
    after = words[words.index("goes on") : words.index("goes on") + 3]
    # A change of the head before the stop is a commit, and may be reported afterwards.
    committed = [each for each in after if each.startswith("committed")]
    assert len(committed) <= (point == "after update LedgerHead"), after
    house.until_completed(house.submit(ALL))
    _ended_well(house)


def test_wall_clock_set_back_causes_no_take_over(house: House) -> None:
    """The clocks of the leader and of one standby are set back."""
    house.start_all("a", "b", "c")
    house.until_completed(house.submit(ALL))
    head = house.epoch()
    house.members["a"].send(signal.SIGUSR1)
    house.members["b"].send(signal.SIGUSR1)
    house.until(lambda: all(house.members[name].has_logged("clock set back") for name in "ab"))
    time.sleep(MARGINS.take / 1000)  # no standby has a reason to take over
    assert (house.holder(), house.epoch()) == ("a", head)
    house.members["a"].kill()
    house.until(lambda: house.holder() in ("b", "c"))
    house.until_completed(house.submit(ALL))
    _ended_well(house)


@pytest.mark.long
def test_runs_complete_after_leader_is_stopped_at_random_moments(house: House) -> None:
    """The leader is stopped for longer than its tenure, twice."""
    house.start_all("a", "b", "c")
    for _ in range(2):
        leader = house.holder()
        names = [house.submit(GPUS, lasts_ms=1) for _ in range(4)]
        house.members[leader].send(signal.SIGSTOP)
        time.sleep((MARGINS.take + MARGINS.hold) / 1000)
        house.members[leader].send(signal.SIGCONT)
        house.until_completed(*names, house.submit(ALL))
    _ended_well(house)
