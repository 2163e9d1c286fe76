"""Planes on one store: one leads, loses its tenure, another goes on; nobody else says a word."""

from pathlib import Path

import pytest
from tests.questions.played import ADMIN
from tests.unit.shell.planes import Cluster, tenure

from leasehold.core.units import MINUTE, SECOND
from leasehold.shell.query import BadQuestion
from leasehold.sim.scenario.ledger import at_once, ledger_problems


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path)


def test_who_does_not_lead_knows_and_writes_nothing(cluster: Cluster) -> None:
    standby = cluster.plane("standby")
    before = cluster.store.version
    cluster.submit("t/a")
    cluster.wait(20 * MINUTE)
    assert standby.world is None
    assert not standby.is_leading
    assert cluster.store.version == before + 1
    with pytest.raises(BadQuestion) as refused:
        at_once(standby.questions.answer(ADMIN, "runs", {}))
    assert refused.value.status == 503


def test_one_loses_it_and_another_goes_on(cluster: Cluster) -> None:
    first, second = cluster.plane("first"), cluster.plane("second")
    first.gained(tenure(3))
    cluster.submit("t/a")
    cluster.wait(MINUTE)
    assert (cluster.epoch(), cluster.phase(first, "t/a")) == (3, "Running")

    events = cluster.events()
    cluster.submit("t/b")
    cluster.wait(SECOND // 4)
    assert cluster.phase(first, "t/b") == "Running"
    first.lost("no renewal was answered")  # what it had to tell of that is not written yet
    assert first.world is None
    cluster.wait(MINUTE)
    assert cluster.events() == events
    second.gained(tenure(4))
    cluster.wait(MINUTE)
    assert (cluster.epoch(), cluster.phase(second, "t/b")) == (4, "Running")

    second.lost("stopped")
    first.gained(tenure(5))
    cluster.wait(MINUTE)
    assert cluster.phase(first, "t/a") == cluster.phase(first, "t/b") == "Running"
    assert ledger_problems(cluster.store) == []
    assert cluster.fleet.breaches == []


def test_who_is_deposed_by_the_head_says_so_once_and_stops(cluster: Cluster) -> None:
    first, second = cluster.plane("first"), cluster.plane("second")
    told: list[str] = []
    first.on_deposed(told.append)
    first.gained(tenure(1))
    cluster.wait(SECOND)
    second.gained(tenure(2))
    cluster.wait(SECOND)
    cluster.submit("t/a")
    cluster.wait(MINUTE)
    assert told == ["somebody else moved the ledger's head"]
    assert first.world is None
    assert cluster.phase(second, "t/a") == "Running"
    assert ledger_problems(cluster.store) == []


def test_who_is_unsure_decides_nothing_until_it_is_sure(cluster: Cluster) -> None:
    plane = cluster.plane("first")
    plane.gained(tenure(1))
    cluster.submit("t/a")
    cluster.wait(MINUTE)
    plane.unsure()
    before = cluster.store.version
    cluster.submit("t/b")
    cluster.wait(5 * SECOND)
    assert cluster.store.version == before + 1
    plane.sure()
    cluster.wait(MINUTE)
    assert cluster.phase(plane, "t/b") == "Running"
