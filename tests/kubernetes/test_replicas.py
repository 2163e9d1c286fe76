"""Several controllers on one cluster: killed, paused, stopped; nothing twice, nothing lost."""

import signal
import time
import urllib.error
import urllib.request
from contextlib import suppress

import pytest
from tests.kubernetes.plane import Plane, budget, job
from tests.kubernetes.replicas import bound, epoch, holder, start
from tests.kubernetes.wellbeing import all_is_well

from leasehold.core.ledger.head import FORMAT

NODES = [f"n{number}" for number in range(64)]


@pytest.mark.parametrize("when", ["at once", "half bound"])
def test_a_holder_that_is_killed_is_followed_by_another(plane: Plane, when: str) -> None:
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
    all_is_well(plane)


WIDE: dict[str, object] = {"locality": {"groupGPUs": 512}}


def test_a_holder_that_was_paused_past_its_tenure_does_nothing_any_more(plane: Plane) -> None:
    plane.kubelets.add(*NODES[:16])
    replicas = start(plane, "a", "b")
    first = holder(plane)
    paused = replicas[first].process
    plane.kubectl.ok("apply", "-f", plane.kubectl.file(budget(gpus=128)))
    plane.kubectl.ok("apply", "-f", plane.kubectl.file(job("before", 64, **_of(64))))
    plane.until(lambda: bool(plane.pods()))
    paused.send_signal(signal.SIGSTOP)
    try:
        plane.until(lambda: holder(plane) not in ("", first))
        plane.until_phase("before", "Running")
        plane.kubectl.ok("apply", "-f", plane.kubectl.file(job("after", 64, **_of(64))))
        plane.until_phase("after", "Running")
        there = {pod["metadata"]["uid"] for pod in plane.pods()}
        sealed = epoch(plane)
    finally:
        paused.send_signal(signal.SIGCONT)
    plane.until(lambda: "tenure lost" in replicas[first].log())
    time.sleep(1)  # whatever it still meant to do
    assert {pod["metadata"]["uid"] for pod in plane.pods()} == there
    assert epoch(plane) == sealed
    assert holder(plane) != first
    all_is_well(plane)


def _of(gpus: int) -> dict[str, object]:
    return {"locality": {"groupGPUs": gpus}}


def test_a_holder_that_is_told_to_stop_hands_over_at_once(plane: Plane) -> None:
    plane.kubelets.add("n1")
    replicas = start(plane, "a", "b")
    first = holder(plane)
    plane.kubectl.ok("apply", "-f", plane.kubectl.file(budget(), job("train", 8)))
    plane.until_phase("train", "Running")
    assert replicas[first].stop() == 0
    plane.until(lambda: holder(plane) not in ("", first))
    plane.exit_all(plane.run("train")["metadata"]["uid"])
    plane.until_phase("train", "Completed")
    all_is_well(plane)


def test_who_does_not_know_the_ledgers_format_stands_by_for_ever(plane: Plane) -> None:
    """As an older replica does during an upgrade, or a rollback that went too far."""
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
