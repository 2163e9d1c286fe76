"""A pod that its node has and cannot start yet is no failed bind: images are large."""

import pytest
from msgspec.structs import replace
from tests.properties.worlds import NOW, a_budget, a_lease, a_node, a_run, a_world

from leasehold.control.decide import decide
from leasehold.control.questions.explain import explain
from leasehold.control.questions.report import Period, gpu_hours
from leasehold.control.questions.subject import find
from leasehold.control.questions.uses import Use, use_of
from leasehold.control.turn import Turn
from leasehold.control.views.numbers import run_view
from leasehold.core.facts import Cause, Lease, Phase, Pod, PodPhase
from leasehold.core.objects.pod import pod_from_wire
from leasehold.core.units import MINUTE, Millis, parse_instant
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


def _ends(world: World, name: str, *, began_at: int | None, at: int) -> Lease:
    """Its only pod says that it has run, and is gone."""
    [pod] = world.pods.values()
    code = 0 if began_at is not None else None
    phase = PodPhase.SUCCEEDED if began_at is not None else PodPhase.PENDING
    world.put_pod(
        replace(pod, phase=phase, began_at=began_at, exit_code=code, finished_at=at, waits_for=None)
    )
    _turn(world, at)
    return world.leases[name]


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


def _hours(world: World, now: int, by: str = "owner") -> list[tuple[int, int, int]]:
    found = gpu_hours(world, now, Period(start=NOW, end=now), by=by, bucket=_minutes)
    return [
        (row.uses.starting.gpu_ms, row.uses.work.gpu_ms, row.gpu_ms)
        for row in (*found.items, found.total)
    ]


def _minutes(at: int) -> tuple[str, int]:
    """Ten of them are a day here."""
    span = (at - NOW) // (10 * MINUTE)
    return str(span), NOW + (span + 1) * 10 * MINUTE


def test_what_a_start_took_is_on_the_closure_and_apart_from_work_in_the_report() -> None:
    world, name = _world(WHY)
    _turn(world, NOW + 4 * MINUTE)
    four = 4 * MINUTE
    assert _hours(world, NOW + 4 * MINUTE)[-1] == (4 * four, 0, 4 * four)
    [pod] = world.pods.values()
    world.put_pod(replace(pod, phase=PodPhase.RUNNING, began_at=NOW + four, waits_for=None))
    assert _hours(world, NOW + 6 * MINUTE)[-1] == (4 * four, 8 * MINUTE, 24 * MINUTE)
    lease = _ends(world, name, began_at=NOW + four, at=NOW + 30 * MINUTE)
    assert lease.closed is not None
    assert (lease.closed.began, lease.closed.at) == (NOW + four, NOW + 30 * MINUTE)
    now = NOW + 60 * MINUTE
    assert _hours(world, now) == [(4 * four, 104 * MINUTE, 120 * MINUTE)] * 2
    assert _hours(world, now, by="day") == [
        (16 * MINUTE, 24 * MINUTE, 40 * MINUTE),
        (0, 40 * MINUTE, 40 * MINUTE),
        (0, 40 * MINUTE, 40 * MINUTE),
        (16 * MINUTE, 104 * MINUTE, 120 * MINUTE),
    ]
    found = gpu_hours(world, now, Period(start=NOW, end=now), by="owner")
    assert found.items[0].leases == 1


def test_a_pod_that_was_gone_before_its_lease_was_closed_is_remembered() -> None:
    world, name = _world(None)
    [pod] = world.pods.values()
    world.put_pod(replace(pod, phase=PodPhase.RUNNING, began_at=NOW + MINUTE))
    world.drop_pod(pod.key)
    _turn(world, NOW + 3 * MINUTE)
    closed = world.leases[name].closed
    assert closed is not None
    assert closed.began == NOW + MINUTE
    assert not world.began_at


def test_one_that_never_ran_was_starting_to_its_end() -> None:
    _, lease = _given_up(retries=0)
    assert lease.closed is not None
    assert lease.closed.began == lease.closed.at > lease.start


def test_one_that_was_ended_while_it_waited_never_ran_whatever_its_code() -> None:
    """A kubelet gives containers that it never started an exit code."""
    world, name = _world(WHY)
    _turn(world, NOW + 20 * MINUTE)
    [pod] = world.pods.values()
    world.put_pod(replace(pod, phase=PodPhase.FAILED, exit_code=137, waits_for=None))
    world.drop_pod(pod.key)
    _turn(world, NOW + 21 * MINUTE)
    closed = world.leases[name].closed
    assert closed is not None
    assert closed.began == closed.at


@pytest.mark.parametrize("began_at", [NOW, NOW - 500], ids=["at once", "by another clock"])
def test_what_takes_no_time_is_not_said(began_at: int) -> None:
    world, name = _world(None)
    lease = _ends(world, name, began_at=began_at, at=NOW + MINUTE)
    assert lease.closed is not None
    assert lease.closed.began is None
    assert _hours(world, NOW + 2 * MINUTE)[-1] == (0, 4 * MINUTE, 4 * MINUTE)


def test_a_nodes_fast_clock_does_not_put_the_begin_after_the_end() -> None:
    world, name = _world(None)
    lease = _ends(world, name, began_at=NOW + 2 * MINUTE, at=NOW + MINUTE)
    assert lease.closed is not None
    assert lease.closed.began == lease.closed.at == NOW + MINUTE


def test_a_pod_began_when_the_first_of_its_containers_did() -> None:
    def at(second: int) -> str:
        return f"2026-11-02T12:00:{second:02d}Z"

    statuses = [
        {"name": "b", "state": {"running": {"startedAt": at(30)}}},
        {
            "name": "a",
            "state": {"waiting": {"reason": "CrashLoopBackOff"}},
            "lastState": {"terminated": {"exitCode": 1, "startedAt": at(20)}},
        },
    ]
    prepares = [{"name": "i", "state": {"terminated": {"exitCode": 0, "startedAt": at(1)}}}]
    pod = pod_from_wire(
        {"status": {"containerStatuses": statuses, "initContainerStatuses": prepares}}
    )
    assert pod.began_at == parse_instant(at(20))
    waits = pod_from_wire({"status": {"initContainerStatuses": prepares}})
    assert waits.began_at is None
