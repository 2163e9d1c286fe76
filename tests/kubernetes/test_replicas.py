"""Several controllers on one cluster, one of which is killed, paused or stopped: no pod is lost
and none is started twice."""

import signal
import time
import urllib.error
import urllib.request
from contextlib import suppress

import pytest
from tests.kubernetes.plane import Plane, budget, job
from tests.kubernetes.replicas import bound, epoch, holder, start
from tests.kubernetes.wellbeing import check_consistency

from leasehold.core.ledger.head import FORMAT

NODES = [f"n{number}" for number in range(64)]


@pytest.mark.parametrize("when", ["at once", "half bound"])
def test_killed_leader_is_followed_by_another_replica(plane: Plane, when: str) -> None:
    plane.kubelets.add(*NODES)
    replicas = start(plane, "a", "b", "c")
    first = holder(plane)
    plane.kubectl.ok("apply", "-f", plane.kubectl.file(budget(gpus=512), job("wide", 512, **WIDE)))
    wanted = {"at once": 0, "half bound": 32}[when]
    plane.until(lambda: len(bound(plane)) >= wanted)
    replicas[first].process.kill()
    replicas[first].process.wait()
    plane.until(lambda: holder(plane) not in ("", first))
    run = plane.until_phase("wide", "Running")
    plane.until(lambda: len(bound(plane)) == 64)
    assert len(plane.pods()) == 64
    plane.exit_all(run["metadata"]["uid"])
    plane.until_phase("wide", "Completed")
    check_consistency(plane)


WIDE: dict[str, object] = {"locality": {"groupGPUs": 512}}


def test_leader_paused_past_its_tenure_changes_nothing_when_it_resumes(plane: Plane) -> None:
    plane.kubelets.add(*NODES[:16])
    replicas = start(plane, "a", "b")
    first = holder(plane)
    paused = replicas[first].process
    plane.kubectl.ok("apply", "-f", plane.kubectl.file(budget(gpus=128)))
    plane.kubectl.ok("apply", "-f", plane.kubectl.file(job("before", 64, **_in_one_group(64))))
    plane.until(lambda: bool(plane.pods()))
    paused.send_signal(signal.SIGSTOP)
    try:
        plane.until(lambda: holder(plane) not in ("", first))
        plane.until_phase("before", "Running")
        plane.kubectl.ok("apply", "-f", plane.kubectl.file(job("after", 64, **_in_one_group(64))))
        plane.until_phase("after", "Running")
        there = {pod["metadata"]["uid"] for pod in plane.pods()}
        sealed = epoch(plane)
    finally:
        paused.send_signal(signal.SIGCONT)
    plane.until(lambda: "tenure lost" in replicas[first].log())
    time.sleep(1)  # time for requests that it still meant to send
    assert {pod["metadata"]["uid"] for pod in plane.pods()} == there
    assert epoch(plane) == sealed
    assert holder(plane) != first
    check_consistency(plane)


def _in_one_group(gpus: int) -> dict[str, object]:
    return {"locality": {"groupGPUs": gpus}}


def test_leader_that_is_stopped_hands_over_to_another_replica(plane: Plane) -> None:
    plane.kubelets.add("n1")
    replicas = start(plane, "a", "b")
    first = holder(plane)
    plane.kubectl.ok("apply", "-f", plane.kubectl.file(budget(), job("train", 8)))
    plane.until_phase("train", "Running")
    assert replicas[first].stop() == 0
    plane.until(lambda: holder(plane) not in ("", first))
    plane.exit_all(plane.run("train")["metadata"]["uid"])
    plane.until_phase("train", "Completed")
    check_consistency(plane)


def test_replica_that_does_not_know_ledger_format_does_not_lead(plane: Plane) -> None:
    """An older replica does this during an upgrade, or after a rollback to too old a version."""
    first = plane.controller("a")
    plane.until(lambda: epoch(plane) == 1)
    assert first.stop() == 0
    sealed = plane.get(HEAD)["spec"]
    _set_format(plane, FORMAT + 1)
    older = plane.controller("b")
    plane.until(lambda: f"format {FORMAT + 1}" in _readiness(older.port))
    assert "the replica cannot decide" in older.log()
    assert holder(plane) == ""
    assert plane.get(HEAD)["spec"] == {**sealed, "format": FORMAT + 1}
    _set_format(plane, FORMAT)
    plane.until(lambda: holder(plane) == "b" and epoch(plane) == 2)
    plane.until(lambda: _readiness(older.port) == "ok\n")


HEAD = "/apis/rq.davidlangworthy.io/v1/ledgerheads/main"


def _set_format(plane: Plane, number: int) -> None:
    plane.kubectl.ok(
        "patch", "ledgerhead", "main", "--type=merge", "-p", f'{{"spec":{{"format":{number}}}}}'
    )


def _readiness(port: int) -> str:
    with suppress(OSError):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as answer:
                return str(answer.read().decode())
        except urllib.error.HTTPError as refused:
            with refused:
                return refused.read().decode()
    return ""
