"""The leader is lost at a certain step; another replica continues, and nothing is done twice."""

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
from tests.kubernetes.wellbeing import check_consistency


@pytest.fixture
def gate(installed: Cluster) -> Iterator[Gate]:
    """The first replica's way to the API server."""
    found = Gate(installed)
    yield found
    found.stop()


def _start_two(plane: Plane, gate: Gate) -> tuple[Controller, Controller]:
    """Start two controllers: the first, behind the gate, leads; the second is a standby."""
    first = plane.controller("first", server=gate.server)
    plane.until(lambda: holder(plane) == "first")
    return first, plane.controller("second")


def _lost(plane: Plane) -> float:
    """Wait until the second replica has the tenure, and return how long that took."""
    began = time.monotonic()
    plane.until(lambda: holder(plane) == "second")
    return time.monotonic() - began


def test_late_bind_of_deposed_leader_is_refused(
    plane: Plane, installed: Cluster, gate: Gate
) -> None:
    """The leader is paused after it has read the head. Its binds reach the API server after the
    next leader has sealed a new epoch and before that leader has bound anything."""
    plane.kubelets.add("n1", "n2")
    other = Gate(installed)
    first = plane.controller("first", server=gate.server)
    try:
        plane.until(lambda: holder(plane) == "first")
        plane.controller("second", server=other.server)
        gate.hold_back("POST", "/binding")
        other.hold_back("POST", "/binding")
        plane.kubectl.ok("apply", "-f", plane.kubectl.file(budget(), job("train", 16)))
        plane.until(lambda: gate.kept == 2)
        first.process.send_signal(signal.SIGSTOP)
        plane.until(lambda: other.kept == 2)  # the successor has read the head, too
        gate.release()
        plane.until(lambda: len(gate.answers) == 2)
        assert gate.answers == [409, 409]
        assert bound(plane) == []
        other.release()
        plane.until_phase("train", "Running")
        first.process.send_signal(signal.SIGCONT)
        plane.until(lambda: "tenure lost" in first.log())
        assert other.answers == [201, 201]
        assert len(plane.pods()) == 2
        check_consistency(plane)
    finally:
        first.process.send_signal(signal.SIGCONT)
        plane.stop_controllers()
        other.stop()


CUTTING = "overdraft.grace: 0s\nresolver.minTenure: 0s\n"


def test_next_leader_preempts_once_when_leader_dies_during_resolution(
    installed: Cluster, tmp_path: Path, gate: Gate
) -> None:
    """The first leader's Resolution is stored but not committed: the next leader draws its own."""
    with plane_on(installed, tmp_path, SETTINGS + CUTTING) as plane:
        plane.kubelets.add("n1", "n2")
        first, _ = _start_two(plane, gate)
        jobs = [job("one", 8), job("two", 8)]
        plane.kubectl.ok("apply", "-f", plane.kubectl.file(budget(gpus=16), *jobs))
        plane.until_phase("one", "Running")
        plane.until_phase("two", "Running")
        gate.hold_back("POST", "/resolutions")
        plane.kubectl.ok("apply", "-f", plane.kubectl.file(budget(gpus=8)))
        plane.until(lambda: gate.kept == 1)
        first.process.kill()
        first.process.wait()
        gate.release()
        plane.until(lambda: gate.answers == [201])
        plane.until(lambda: holder(plane) == "second")
        plane.until(lambda: _phases(plane).count("Running") == 1)
        assert len(plane.all("resolutions")) == 1
        check_consistency(plane)
        plane.stop_controllers()


def _phases(plane: Plane) -> list[str]:
    return [plane.run(name)["status"]["phase"] for name in ("one", "two")]


def test_leader_cut_off_from_api_server_becomes_standby_again(plane: Plane, gate: Gate) -> None:
    plane.kubelets.add("n1", "n2")
    first, _ = _start_two(plane, gate)
    plane.kubectl.ok("apply", "-f", plane.kubectl.file(budget(), job("before", 8)))
    plane.until_phase("before", "Running")
    gate.cut()
    took = _lost(plane)
    plane.until(lambda: "tenure lost" in first.log())
    plane.kubectl.ok("apply", "-f", plane.kubectl.file(job("after", 8)))
    plane.until_phase("after", "Running")
    sealed = epoch(plane)
    gate.mend()
    time.sleep(1)  # time for the first replica to act wrongly
    assert (holder(plane), epoch(plane)) == ("second", sealed)
    assert len(plane.pods()) == 2
    assert took < 60
    check_consistency(plane)
    plane.stop_controllers()


def test_leader_cut_off_from_api_server_still_stops_on_sigterm(plane: Plane, gate: Gate) -> None:
    first = plane.controller("first", server=gate.server)
    plane.until(lambda: holder(plane) == "first")
    gate.cut()
    plane.until(lambda: "tenure lost" in first.log())
    assert first.stop() == 0


def test_tenure_lost_before_first_decision_is_logged_and_regained(plane: Plane, gate: Gate) -> None:
    """The leader has not read the lottery's key yet."""
    gate.hold_back("GET", "/secrets/")
    first = plane.controller("first", server=gate.server)
    plane.until(lambda: gate.kept == 1)
    gate.cut()
    plane.until(lambda: "tenure lost" in first.log())
    gate.release()
    gate.mend()
    plane.until(lambda: first.log().count("tenure gained") == 2)
    plane.until(lambda: epoch(plane) > 0)
    assert first.stop() == 0


@pytest.mark.parametrize("program", ["kube-apiserver", "etcd"])
def test_runs_continue_after_restart_of_api_server_or_etcd(plane: Plane, program: str) -> None:
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
    check_consistency(plane)


def test_api_service_is_removed_when_all_replicas_have_stopped(plane: Plane) -> None:
    """An APIService that no process serves would prevent the deletion of every namespace."""
    with answering(plane) as asked:
        assert asked.get(API_SERVICE)["kind"] == "APIService"
        asked.stop_controllers()
        assert asked.get(API_SERVICE)["code"] == 404
        found = asked.leasehold("runs", "list")
        assert found.returncode != 0
        assert "is leasehold's controller running?" in found.stderr


def test_api_service_is_removed_when_it_is_configured_off(
    installed: Cluster, tmp_path: Path
) -> None:
    with plane_on(installed, tmp_path, SETTINGS) as plane, answering(plane) as asked:
        asked.kill_controllers()
        assert asked.get(API_SERVICE)["kind"] == "APIService", "no controller was left to remove it"
        (tmp_path / "config.yaml").write_text(f"{SETTINGS}query.aggregated: false\n")
        asked.controller("b", "--questions", "127.0.0.1:0")
        asked.until(lambda: asked.get(API_SERVICE).get("code") == 404)
