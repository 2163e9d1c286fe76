"""A missing batch or ledger head is detected and reported, and leads to no damage."""

from pathlib import Path

import pytest
from tests.unit.shell.planes import Cluster, tenure

from leasehold.core.names import Wire
from leasehold.core.objects.lease import ARCHIVED
from leasehold.core.objects.wire import list_at, part, text_at
from leasehold.core.units import MINUTE, SECOND
from leasehold.ports.store import NotFound
from leasehold.shell.leadership.standby import Standby
from leasehold.shell.plane import Plane
from leasehold.sim.scenario.ledger import at_once, objects_of


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    found = Cluster(tmp_path)
    found.submit("t/a")
    return found


def leading(cluster: Cluster, name: str = "first", epoch: int = 1) -> Plane:
    plane = cluster.plane(name, is_strict=False)
    plane.gained(tenure(epoch))
    cluster.wait(MINUTE)
    return plane


def gauge(plane: Plane, name: str) -> float:
    [line] = [each for each in plane.metrics.text().decode().splitlines()
              if each.startswith(f"leasehold_{name} ")]  # fmt: skip
    return float(line.split()[1])


def names(cluster: Cluster, kind: str) -> list[str]:
    return [text_at(part(each, "metadata"), "name") for each in objects_of(cluster.store, kind)]


def force_out(cluster: Cluster, kind: str, name: str) -> Wire:
    """Remove an object's finalizer and delete it, as an administrator could."""
    found = at_once(cluster.store.get(kind, "", name))
    at_once(cluster.store.set_finalizers(kind, "", name, (), known=(ARCHIVED,)))
    at_once(cluster.store.delete(kind, "", name, uid=None))
    return found


def put_back(cluster: Cluster, obj: Wire) -> None:
    metadata = {each: part(obj, "metadata")[each] for each in ("name", "finalizers")}
    at_once(cluster.store.create({**obj, "metadata": metadata}))


@pytest.mark.parametrize("kind", ["LedgerBatch", "LedgerHead"])
def test_deleted_ledger_object_is_kept_by_its_finalizer(cluster: Cluster, kind: str) -> None:
    plane = leading(cluster)
    for name in names(cluster, kind):
        assert list_at(part(at_once(cluster.store.get(kind, "", name)), "metadata"),
                       "finalizers") == [ARCHIVED]  # fmt: skip
        at_once(cluster.store.delete(kind, "", name, uid=None))
    cluster.submit("t/b")
    cluster.wait(MINUTE)
    assert cluster.phase(plane, "t/b") == "Running"
    assert gauge(plane, "ledger_gaps") == 0
    for name in names(cluster, kind):
        assert list_at(part(at_once(cluster.store.get(kind, "", name)), "metadata"),
                       "finalizers") == [ARCHIVED]  # fmt: skip


def test_missing_batch_raises_alert_and_is_a_gap_until_it_is_put_back(cluster: Cluster) -> None:
    plane = leading(cluster)
    alerts = gauge(plane, "alerts_total")
    gone = force_out(cluster, "LedgerBatch", names(cluster, "LedgerBatch")[0])
    cluster.wait(SECOND)
    assert gauge(plane, "ledger_gaps") == 1
    assert gauge(plane, "alerts_total") == alerts + 1
    assert gauge(plane, "decides") == 1
    cluster.submit("t/b")
    cluster.wait(MINUTE)
    assert cluster.phase(plane, "t/b") == "Running"

    put_back(cluster, gone)
    cluster.wait(SECOND)
    assert gauge(plane, "ledger_gaps") == 0


def test_new_leader_reports_missing_batch_and_leads_once_it_is_back(
    cluster: Cluster,
) -> None:
    first = leading(cluster)
    gone = force_out(cluster, "LedgerBatch", names(cluster, "LedgerBatch")[0])
    first.lost("stopped")
    second = leading(cluster, "second", 2)
    assert second.world is None
    assert second.controller.trouble == "the ledger has no batch 1 that its head names"
    assert (gauge(second, "ledger_gaps"), gauge(second, "decides")) == (1, 0)

    put_back(cluster, gone)
    cluster.wait(MINUTE)
    assert cluster.phase(second, "t/a") == "Running"
    assert second.controller.trouble == ""
    assert (gauge(second, "ledger_gaps"), gauge(second, "decides")) == (0, 1)


def test_missing_head_is_reported_and_no_new_ledger_is_started(
    cluster: Cluster,
) -> None:
    first = leading(cluster)
    before = names(cluster, "LedgerBatch")
    first.lost("stopped")
    gone = force_out(cluster, "LedgerHead", "main")
    second = leading(cluster, "second", 2)
    assert "no head" in second.controller.trouble
    with pytest.raises(NotFound):
        at_once(cluster.store.get("LedgerHead", "", "main"))
    put_back(cluster, gone)
    cluster.wait(MINUTE)
    assert cluster.phase(second, "t/a") == "Running"
    assert set(before) <= set(names(cluster, "LedgerBatch"))


def test_standby_reports_which_batch_is_missing(cluster: Cluster) -> None:
    leading(cluster)
    force_out(cluster, "LedgerBatch", names(cluster, "LedgerBatch")[0])
    process = cluster.kernel.process("standby")
    standby = Standby(cluster.store, process.clock, process.tasks)
    standby.begin()
    cluster.wait(MINUTE)
    assert not standby.is_in_step
    assert standby.trouble == "the ledger has no batch 1 that its head names"
