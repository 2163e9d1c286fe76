"""Three real control planes on one real file: killed, stopped in the middle of a commit, with a
clock that is set back. Nothing is decided twice, and somebody always goes on."""

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
        assert member.end() in (0, -signal.SIGKILL), member.told()[-5:]
    followed = house.judge()
    for epoch, name, took in house.take_overs():
        print(f"epoch {epoch}: {name} leads, {took} ms after the one before did not any more")
    return followed


def test_one_decides_and_hands_over_when_it_is_told_to_stop(house: House) -> None:
    house.start_all("a", "b", "c")
    house.until_completed(house.submit(ALL))
    assert house.members["a"].end() == 0
    house.until(lambda: house.holder() in ("b", "c"))
    house.until_completed(house.submit(ALL))
    assert _ended_well(house)[0].handed_over


def test_whoever_is_killed_is_followed_by_another(house: House) -> None:
    """Again and again, and started again, with work under way each time."""
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
def test_whoever_stood_still_in_a_commit_decides_nothing_more(house: House, point: str) -> None:
    """Past its tenure: another one decides meanwhile, and when it goes on it finds that out."""
    house.start_all("a", "b", "c", first=("--stop-at", point))
    stopped = house.members["a"]
    first = house.submit(ALL)
    house.until(lambda: stopped.has_told("stopped"))
    house.until(lambda: house.holder() in ("b", "c"))
    house.until_completed(first, house.submit(GPUS))
    stopped.send(signal.SIGCONT)
    house.until(lambda: stopped.has_told("lost"))
    told = [each.words for each in stopped.told()]
    after = told[told.index("goes on") : told.index("goes on") + 3]
    # What it had swapped into the head was true before it stood still.
    it_told = [words for words in after if words.startswith("committed")]
    assert len(it_told) <= (point == "after update LedgerHead"), after
    house.until_completed(house.submit(ALL))
    _ended_well(house)


def test_a_clock_that_is_set_back_changes_nothing_about_who_decides(house: House) -> None:
    """The holder's, and then a contender's."""
    house.start_all("a", "b", "c")
    house.until_completed(house.submit(ALL))
    head = house.epoch()
    house.members["a"].send(signal.SIGUSR1)
    house.members["b"].send(signal.SIGUSR1)
    house.until(lambda: all(house.members[name].has_told("clock set back") for name in "ab"))
    time.sleep(MARGINS.take / 1000)  # nobody has a reason to take over meanwhile
    assert (house.holder(), house.epoch()) == ("a", head)
    house.members["a"].kill()
    house.until(lambda: house.holder() in ("b", "c"))
    house.until_completed(house.submit(ALL))
    _ended_well(house)


@pytest.mark.long
def test_whoever_is_stopped_anywhere_is_followed_when_the_file_allows_it(house: House) -> None:
    """At no point in particular, for longer than its tenure; twice."""
    house.start_all("a", "b", "c")
    for _ in range(2):
        leader = house.holder()
        names = [house.submit(GPUS, lasts_ms=1) for _ in range(4)]
        house.members[leader].send(signal.SIGSTOP)
        time.sleep((MARGINS.take + MARGINS.hold) / 1000)
        house.members[leader].send(signal.SIGCONT)
        house.until_completed(*names, house.submit(ALL))
    _ended_well(house)
