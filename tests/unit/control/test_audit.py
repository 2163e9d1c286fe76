"""The audit reports every record that disagrees, and repairs nothing."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace
from tests.properties.worlds import NOW, a_budget, a_lease, a_node, a_run, a_world

from leasehold.control.audit import audit
from leasehold.core.facts import Pod, PodPhase
from leasehold.core.world.world import World


def a_world_at_rest() -> tuple[World, Pod]:
    world = a_world([a_node("n0"), a_node("n1")], [a_budget("t")])
    run = a_run("r")
    world.put_run(run)
    lease = a_lease(run, "n0", range(4), batch=1, index=0)
    world.fold_open(lease)
    pod = Pod(namespace="n", name=lease.pod, node="n0", gpus=4, run_uid=run.uid,
              phase=PodPhase.RUNNING)  # fmt: skip
    return world, pod


def test_audit_of_a_world_at_rest_finds_nothing() -> None:
    world, pod = a_world_at_rest()
    foreign = Pod(namespace="x", name="p", node="n1", gpus=2, phase=PodPhase.RUNNING)
    assert audit(world, [pod, foreign], NOW) == []


# the pods instead of the one that the lease requires, and what the audit reports
DISAGREEMENTS: list[tuple[Callable[[Pod], list[Pod]], str]] = [
    (lambda _: [], "it has no pod"),
    (lambda pod: [replace(pod, phase=PodPhase.ORDERED)], "it has no pod"),
    (lambda pod: [replace(pod, phase=PodPhase.SUCCEEDED)], "has ended"),
    (lambda pod: [replace(pod, gpus=3)], "has 3 GPUs"),
    (lambda pod: [replace(pod, node="n1")], "is on n1"),
    (lambda pod: [pod, replace(pod, name="stray")], "without an open lease"),
]


@pytest.mark.parametrize(("pods", "said"), DISAGREEMENTS, ids=[row[1] for row in DISAGREEMENTS])
def test_pod_that_disagrees_with_its_lease_is_reported(
    pods: Callable[[Pod], list[Pod]], said: str
) -> None:
    world, pod = a_world_at_rest()
    found = audit(world, pods(pod), NOW)
    assert len(found) == 1
    assert said in found[0]


def test_deleted_pod_on_a_silent_node_is_not_reported() -> None:
    world, pod = a_world_at_rest()
    stray = replace(pod, name="stray", node="n1")
    going = replace(stray, deleting=True)
    assert len(audit(world, [pod, going], NOW)) == 1
    world.put_node(replace(a_node("n1"), ready=False, not_ready_since=NOW))
    assert audit(world, [pod, going], NOW) == []
    assert len(audit(world, [pod, stray], NOW)) == 1


def test_account_that_disagrees_with_its_leases_is_reported() -> None:
    world, pod = a_world_at_rest()
    lease = world.leases["r-1-0"]
    world.accounts.add(lease, world.terms[lease.name])
    found = audit(world, [pod], NOW)
    assert found[0].startswith("n/t/e pays for 4 GPUs, its account says 8")
    assert "GPU-ms" in found[1]
