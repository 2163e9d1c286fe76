"""Several controllers on one cluster: killed, paused, stopped; nothing twice, nothing lost."""

import signal
import time
from typing import Any

import pytest
from tests.kubernetes.plane import Controller, Plane, budget, job

NODES = [f"n{number}" for number in range(16)]


def _start(plane: Plane, *names: str) -> dict[str, Controller]:
    """The first of them has tenure before the others come."""
    found = {}
    for name in names:
        found[name] = plane.controller(name)
        plane.until(lambda: bool(_holder(plane)))
    return found


def _holder(plane: Plane) -> str:
    """Who has tenure, by the name it was started with."""
    path = "/apis/coordination.k8s.io/v1/namespaces/leasehold-system/leases"
    for each in plane.get(path)["items"]:
        held = each["spec"].get("holderIdentity") or ""
        return str(held.rpartition("_")[0])
    return ""


def _bound(plane: Plane) -> list[Any]:
    return [pod for pod in plane.pods() if pod["spec"].get("nodeName")]


def _epoch(plane: Plane) -> int:
    return max([0, *(int(each["spec"]["epoch"]) for each in plane.all("ledgerheads"))])


def _all_is_well(plane: Plane) -> None:
    """Every pod where a lease says, no GPU twice, and a ledger that proves itself."""
    for words, said in ((("ledger", "verify"), "ledger verify: ok"), (("audit",), "audit: ok")):
        found = plane.leasehold(*words, "--kubeconfig", str(plane.cluster.kubeconfig()))
        assert found.stdout.startswith(said), found.stdout + found.stderr
    assert plane.kubelets.do(lambda fleet: list(fleet.breaches)) == []


@pytest.mark.parametrize("when", ["at once", "half bound"])
def test_a_holder_that_is_killed_is_followed_by_another(plane: Plane, when: str) -> None:
    plane.kubelets.add(*NODES)
    replicas = _start(plane, "a", "b", "c")
    first = _holder(plane)
    plane.kubectl.ok("apply", "-f", plane.kubectl.file(budget(gpus=128), job("wide", 128, **WIDE)))
    wanted = {"at once": 0, "half bound": 8}[when]
    plane.until(lambda: len(_bound(plane)) >= wanted)
    replicas[first].process.kill()
    replicas[first].process.wait()
    plane.until(lambda: _holder(plane) not in ("", first))
    run = plane.until_phase("wide", "Running")
    plane.until(lambda: len(_bound(plane)) == 16)
    assert len(plane.pods()) == 16
    plane.exit_all(run["metadata"]["uid"])
    plane.until_phase("wide", "Completed")
    _all_is_well(plane)


WIDE: dict[str, object] = {"locality": {"groupGPUs": 128}}


def test_a_holder_that_was_paused_past_its_tenure_does_nothing_any_more(plane: Plane) -> None:
    plane.kubelets.add(*NODES)
    replicas = _start(plane, "a", "b")
    first = _holder(plane)
    paused = replicas[first].process
    plane.kubectl.ok("apply", "-f", plane.kubectl.file(budget(gpus=128)))
    plane.kubectl.ok("apply", "-f", plane.kubectl.file(job("before", 64, **_of(64))))
    plane.until(lambda: bool(plane.pods()))
    paused.send_signal(signal.SIGSTOP)
    try:
        plane.until(lambda: _holder(plane) not in ("", first))
        plane.until_phase("before", "Running")
        plane.kubectl.ok("apply", "-f", plane.kubectl.file(job("after", 64, **_of(64))))
        plane.until_phase("after", "Running")
        there = {pod["metadata"]["uid"] for pod in plane.pods()}
        epoch = _epoch(plane)
    finally:
        paused.send_signal(signal.SIGCONT)
    plane.until(lambda: "tenure lost" in replicas[first].log())
    time.sleep(1)  # whatever it still meant to do
    assert {pod["metadata"]["uid"] for pod in plane.pods()} == there
    assert _epoch(plane) == epoch
    assert _holder(plane) != first
    _all_is_well(plane)


def _of(gpus: int) -> dict[str, object]:
    return {"locality": {"groupGPUs": gpus}}


def test_a_holder_that_is_told_to_stop_hands_over_at_once(plane: Plane) -> None:
    plane.kubelets.add("n1")
    replicas = _start(plane, "a", "b")
    first = _holder(plane)
    plane.kubectl.ok("apply", "-f", plane.kubectl.file(budget(), job("train", 8)))
    plane.until_phase("train", "Running")
    assert replicas[first].stop() == 0
    plane.until(lambda: _holder(plane) not in ("", first))
    plane.exit_all(plane.run("train")["metadata"]["uid"])
    plane.until_phase("train", "Completed")
    _all_is_well(plane)
