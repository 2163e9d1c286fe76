"""A pod that its node has and cannot start yet is no failed bind: images are large."""

from msgspec.structs import replace
from tests.properties.worlds import NOW, a_budget, a_lease, a_node, a_run, a_world

from leasehold.control.decide import decide
from leasehold.control.questions.subject import find
from leasehold.control.questions.uses import Use, use_of
from leasehold.control.questions.why import explain
from leasehold.control.turn import Turn
from leasehold.control.views.numbers import run_view
from leasehold.core.facts import Cause, Lease, Phase, Pod
from leasehold.core.objects.pod import pod_from_wire
from leasehold.core.units import MINUTE, Millis
from leasehold.core.world.world import World

WHY = "ImagePullBackOff: there is no such image"


def _world(
    waits_for: str | None, start_timeout: Millis | None = None, *, retries: int = 0
) -> tuple[World, str]:
    world, run = a_world([a_node("n0")], [a_budget("t")]), a_run("r")
    run = replace(run, spec=replace(run.spec, start_timeout=start_timeout, retries=retries))
    world.put_run(run)
    lease = replace(a_lease(run, "n0", range(4), batch=2, index=0, start=NOW), attempt=1)
    world.fold_open(lease)
    world.put_pod(
        Pod(
            namespace=lease.namespace,
            name=lease.pod,
            node="n0",
            gpus=4,
            uid="p",
            run_uid=run.uid,
            attempt=1,
            waits_for=waits_for,
        )
    )
    return world, lease.name


def _turn(world: World, now: int) -> Turn:
    return decide(
        world,
        now=now,
        key=b"",
        time_trusted=True,
        quarantined=frozenset(),
        left_alone=frozenset(),
    )


def test_a_pod_that_no_node_speaks_of_is_taken_back_after_the_bind_timeout() -> None:
    world, name = _world(None)
    _turn(world, NOW + 2 * MINUTE)
    assert world.leases[name].ending is not None


def test_a_pod_that_its_node_has_may_take_longer_to_start_and_says_why() -> None:
    world, name = _world(WHY)
    _turn(world, NOW + 19 * MINUTE)
    assert world.leases[name].ending is None
    view = run_view(world, world.leases[name].uid, NOW + 19 * MINUTE)
    assert (view.because, WHY in view.message) == ("Starting", True)
    turn = _turn(world, NOW + 20 * MINUTE)
    assert world.leases[name].ending is not None
    assert any(WHY in notice.message for notice in turn.notices)


def _given_up(retries: int) -> tuple[World, Lease]:
    """An attempt that could not be started, when its pod has gone."""
    world, name = _world(WHY, retries=retries)
    _turn(world, NOW + 20 * MINUTE)
    [pod] = world.pods.values()
    world.drop_pod(pod.key)
    _turn(world, NOW + 21 * MINUTE)
    return world, world.leases[name]


def test_an_attempt_that_could_not_be_started_has_failed_with_the_kubelets_reason() -> None:
    world, lease = _given_up(retries=0)
    assert (str(lease.why), lease.cause) == (f"Fail({WHY})", Cause.UNSTARTED)
    view = run_view(world, lease.uid, NOW + 22 * MINUTE)
    assert (view.phase, view.because) == (Phase.FAILED, "WorkloadFailed")
    assert WHY in view.message
    found = find(world, lease.run_key)
    assert found is not None
    told = explain(world, found, NOW + 22 * MINUTE)
    assert WHY in told.sentences[0]
    assert "runtime.startTimeout" in told.remedies[0]
    assert use_of(world, lease) is Use.STARTING


def test_it_uses_up_a_retry() -> None:
    world, lease = _given_up(retries=1)
    view = run_view(world, lease.uid, NOW + 21 * MINUTE)
    assert (view.phase, view.because) == (Phase.PENDING, "WorkloadFailed")
    assert WHY in view.message
    assert "0 more of 1 retry" in view.message


def test_of_a_gang_one_lease_says_why_and_all_of_them_end() -> None:
    world, _ = _world(WHY * 50)
    run = world.runs[a_run("r").uid]
    mate = replace(a_lease(run, "n0", range(4, 8), batch=2, index=1, start=NOW), attempt=1)
    world.fold_open(mate)
    world.put_pod(
        Pod(namespace=mate.namespace, name=mate.pod, node="n0", gpus=4, uid="q",
            run_uid=run.uid, attempt=1, waits_for=WHY)
    )  # fmt: skip
    _turn(world, NOW + 20 * MINUTE)
    said = [str(lease.ending.why) for lease in world.leases.values() if lease.ending]
    assert len(said) == 2
    assert said.count("Fail") == 1
    assert max(map(len, said)) < 250


def test_a_run_may_say_how_long_its_pods_take() -> None:
    world, name = _world(WHY, start_timeout=5 * MINUTE)
    _turn(world, NOW + 4 * MINUTE)
    assert world.leases[name].ending is None
    _turn(world, NOW + 5 * MINUTE)
    assert world.leases[name].ending is not None


def test_what_a_kubelet_says_is_read_from_its_containers() -> None:
    waiting = {"reason": "ImagePullBackOff", "message": "there is no such image"}
    status = {
        "phase": "Pending",
        "startTime": "2026-11-15T00:00:00Z",
        "containerStatuses": [{"name": "main", "state": {"waiting": waiting}}],
    }
    wire: dict[str, object] = {"metadata": {"name": "p"}, "spec": {}, "status": status}
    assert pod_from_wire(wire).waits_for == WHY
    wire["status"] = {"phase": "Pending", "startTime": "2026-11-15T00:00:00Z"}
    assert pod_from_wire(wire).waits_for == ""
    wire["status"] = {"phase": "Pending"}
    assert pod_from_wire(wire).waits_for is None
