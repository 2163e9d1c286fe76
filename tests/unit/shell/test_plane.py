"""Planes on one store: one leads, loses its tenure, and another continues; others are silent."""

from pathlib import Path

import pytest
from tests.questions.played import ADMIN
from tests.unit.shell.planes import Cluster, tenure

from leasehold.core.units import MINUTE, SECOND
from leasehold.shell.queries.query import BadQuestion
from leasehold.sim.scenario.ledger import at_once, ledger_problems


@pytest.fixture
def rivals(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path)


def test_plane_without_tenure_knows_and_writes_nothing(rivals: Cluster) -> None:
    standby = rivals.plane("standby")
    before = rivals.store.version
    rivals.submit("t/a")
    rivals.wait(20 * MINUTE)
    assert standby.world is None
    assert not standby.is_leading
    assert rivals.store.version == before + 1
    with pytest.raises(BadQuestion) as refused:
        at_once(standby.questions.answer(ADMIN, "runs", {}))
    assert refused.value.status == 503


def test_second_plane_continues_when_first_loses_tenure(rivals: Cluster) -> None:
    first, second = rivals.plane("first"), rivals.plane("second")
    first.gained(tenure(3))
    rivals.submit("t/a")
    rivals.wait(MINUTE)
    assert (rivals.epoch(), rivals.phase(first, "t/a")) == (3, "Running")

    events = rivals.events()
    rivals.submit("t/b")
    rivals.wait(SECOND // 4)
    assert rivals.phase(first, "t/b") == "Running"
    first.lost("no renewal was answered")  # its events about t/b are not written yet
    assert first.world is None
    rivals.wait(MINUTE)
    assert rivals.events() == events
    second.gained(tenure(4))
    rivals.wait(MINUTE)
    assert (rivals.epoch(), rivals.phase(second, "t/b")) == (4, "Running")

    second.lost("stopped")
    first.gained(tenure(5))
    rivals.wait(MINUTE)
    assert rivals.phase(first, "t/a") == rivals.phase(first, "t/b") == "Running"
    assert ledger_problems(rivals.store) == []
    assert rivals.fleet.breaches == []


def test_plane_deposed_by_the_head_reports_it_once_and_stops(rivals: Cluster) -> None:
    first, second = rivals.plane("first"), rivals.plane("second")
    told: list[str] = []
    first.on_deposed(told.append)
    first.gained(tenure(1))
    rivals.wait(SECOND)
    second.gained(tenure(2))
    rivals.wait(SECOND)
    rivals.submit("t/a")
    rivals.wait(MINUTE)
    assert told == ["another process moved the ledger's head"]
    assert first.world is None
    assert rivals.phase(second, "t/a") == "Running"
    assert ledger_problems(rivals.store) == []


def test_unsure_plane_decides_nothing_until_it_is_sure(rivals: Cluster) -> None:
    plane = rivals.plane("first")
    plane.gained(tenure(1))
    rivals.submit("t/a")
    rivals.wait(MINUTE)
    plane.unsure()
    before = rivals.store.version
    rivals.submit("t/b")
    rivals.wait(5 * SECOND)
    assert rivals.store.version == before + 1
    plane.sure()
    rivals.wait(MINUTE)
    assert rivals.phase(plane, "t/b") == "Running"
