"""Whoever decides is lost at a certain step; another one goes on, and nothing is done twice."""

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.kubernetes.asking import API_SERVICE, answering
from tests.kubernetes.cluster import Cluster
from tests.kubernetes.conftest import SETTINGS
from tests.kubernetes.gate import Gate
from tests.kubernetes.plane import Controller, Plane, budget, job, plane_on
from tests.kubernetes.replicas import bound, epoch, holder
from tests.kubernetes.wellbeing import all_is_well


@pytest.fixture
def gate(installed: Cluster) -> Iterator[Gate]:
    """The first replica's way to the API server."""
    found = Gate(installed)
    yield found
    found.stop()


def _two(plane: Plane, gate: Gate) -> tuple[Controller, Controller]:
    """The first, behind the gate, has tenure; the second waits for it."""
    first = plane.controller("first", server=gate.server)
    plane.until(lambda: holder(plane) == "first")
    return first, plane.controller("second")


def _lost(plane: Plane) -> float:
    """When somebody else has tenure: how long nobody did, as an onlooker sees it."""
    began = time.monotonic()
    plane.until(lambda: holder(plane) == "second")
    return time.monotonic() - began


def test_a_bind_that_was_under_way_when_somebody_else_came_is_refused(
    plane: Plane, installed: Cluster, gate: Gate
) -> None:
    """Paused after it had read the head: what it sent comes to the API server when a new epoch is
    sealed, and before its successor has bound anything."""
    plane.kubelets.add("n1", "n2")
    other = Gate(installed)
    first = plane.controller("first", server=gate.server)
    try:
        plane.until(lambda: holder(plane) == "first")
        plane.controller("second", server=other.server)
        gate.keep_back("POST", "/binding")
        other.keep_back("POST", "/binding")
        plane.kubectl.ok("apply", "-f", plane.kubectl.file(budget(), job("train", 16)))
        plane.until(lambda: gate.kept == 2)
        first.process.send_signal(signal.SIGSTOP)
        plane.until(lambda: other.kept == 2)  # the successor has read the head, too
        gate.let_on()
        plane.until(lambda: len(gate.answers) == 2)
        assert gate.answers == [409, 409]
        assert bound(plane) == []
        other.let_on()
        plane.until_phase("train", "Running")
        first.process.send_signal(signal.SIGCONT)
        plane.until(lambda: "tenure lost" in first.log())
        assert other.answers == [201, 201]
        assert len(plane.pods()) == 2
        all_is_well(plane)
    finally:
        first.process.send_signal(signal.SIGCONT)
        plane.stop_controllers()
        other.stop()


CUTTING = "overdraft.grace: 0s\nresolver.minTenure: 0s\n"


def test_a_holder_that_dies_in_the_middle_of_a_resolution(
    installed: Cluster, tmp_path: Path, gate: Gate
) -> None:
    """Its proof of a cut is stored, and the cut was never true: the next one draws for itself."""
    with plane_on(installed, tmp_path, SETTINGS + CUTTING) as plane:
        plane.kubelets.add("n1", "n2")
        first, _ = _two(plane, gate)
        jobs = [job("one", 8), job("two", 8)]
        plane.kubectl.ok("apply", "-f", plane.kubectl.file(budget(gpus=16), *jobs))
        plane.until_phase("one", "Running")
        plane.until_phase("two", "Running")
        gate.keep_back("POST", "/resolutions")
        plane.kubectl.ok("apply", "-f", plane.kubectl.file(budget(gpus=8)))
        plane.until(lambda: gate.kept == 1)
        first.process.kill()
        first.process.wait()
        gate.let_on()
        plane.until(lambda: gate.answers == [201])
        plane.until(lambda: holder(plane) == "second")
        plane.until(lambda: _phases(plane).count("Running") == 1)
        assert len(plane.all("resolutions")) == 1
        all_is_well(plane)
        plane.stop_controllers()


def _phases(plane: Plane) -> list[str]:
    return [plane.run(name)["status"]["phase"] for name in ("one", "two")]


def test_a_holder_that_is_cut_off_stops_by_itself_and_comes_back_as_a_standby(
    plane: Plane, gate: Gate
) -> None:
    plane.kubelets.add("n1", "n2")
    first, _ = _two(plane, gate)
    plane.kubectl.ok("apply", "-f", plane.kubectl.file(budget(), job("before", 8)))
    plane.until_phase("before", "Running")
    gate.cut()
    took = _lost(plane)
    plane.until(lambda: "tenure lost" in first.log())
    plane.kubectl.ok("apply", "-f", plane.kubectl.file(job("after", 8)))
    plane.until_phase("after", "Running")
    sealed = epoch(plane)
    gate.mend()
    time.sleep(1)  # whatever it might do now
    assert (holder(plane), epoch(plane)) == ("second", sealed)
    assert len(plane.pods()) == 2
    assert took < 60
    all_is_well(plane)
    plane.stop_controllers()


def test_one_that_nobody_answers_stops_all_the_same(plane: Plane, gate: Gate) -> None:
    first = plane.controller("first", server=gate.server)
    plane.until(lambda: holder(plane) == "first")
    gate.cut()
    plane.until(lambda: "tenure lost" in first.log())
    assert first.stop() == 0


def test_tenure_that_is_lost_before_anything_could_be_decided_is_told(
    plane: Plane, gate: Gate
) -> None:
    """It has not come to know the lottery's key yet."""
    gate.keep_back("GET", "/secrets/")
    first = plane.controller("first", server=gate.server)
    plane.until(lambda: gate.kept == 1)
    gate.cut()
    plane.until(lambda: "tenure lost" in first.log())
    gate.let_on()
    gate.mend()
    plane.until(lambda: first.log().count("tenure gained") == 2)
    plane.until(lambda: epoch(plane) > 0)
    assert first.stop() == 0


@pytest.mark.parametrize("program", ["kube-apiserver", "etcd"])
def test_work_goes_on_while_the_api_server_or_its_store_is_restarted(
    plane: Plane, program: str
) -> None:
    plane.kubelets.add("n1", "n2")
    plane.controller()
    plane.kubectl.ok("apply", "-f", plane.kubectl.file(budget(), job("before", 8)))
    before = plane.until_phase("before", "Running")
    plane.cluster.restart(program)
    plane.exit_all(before["metadata"]["uid"])
    plane.until_phase("before", "Completed")
    file = plane.kubectl.file(job("after", 8))
    plane.until(lambda: plane.kubectl("apply", "-f", file).code == 0)
    plane.until_phase("after", "Running")
    assert len(plane.all("leases")) == 2
    all_is_well(plane)


def test_when_all_replicas_have_stopped_nobody_waits_for_them(plane: Plane) -> None:
    """An API that is announced and not served would keep every namespace from being deleted."""
    with answering(plane) as asked:
        assert asked.get(API_SERVICE)["kind"] == "APIService"
        asked.stop_controllers()
        assert asked.get(API_SERVICE)["code"] == 404
        found = asked.leasehold("runs", "list")
        assert found.returncode != 0
        assert "is leasehold's controller running?" in found.stderr


def test_an_api_that_is_not_wanted_any_more_is_taken_down(
    installed: Cluster, tmp_path: Path
) -> None:
    with plane_on(installed, tmp_path, SETTINGS) as plane, answering(plane) as asked:
        asked.kill_controllers()
        assert asked.get(API_SERVICE)["kind"] == "APIService", "nobody could take it down"
        (tmp_path / "config.yaml").write_text(f"{SETTINGS}query.aggregated: false\n")
        asked.controller("b", "--questions", "127.0.0.1:0")
        asked.until(lambda: asked.get(API_SERVICE).get("code") == 404)
