"""A pod that its node accepted but cannot start yet is not a failed bind: images are large."""

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


def _lease_after_pod_ends(world: World, name: str, *, began_at: int | None, at: int) -> Lease:
    """Let the only pod end, with the given times, and return its lease."""
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


def test_pod_without_news_from_a_node_is_ended_after_the_bind_timeout() -> None:
    world, name = _world(None)
    _turn(world, NOW + 2 * MINUTE)
    assert world.leases[name].ending is not None


def test_pod_accepted_by_its_node_gets_the_start_timeout_and_reports_why() -> None:
    world, name = _world(WHY)
    _turn(world, NOW + 19 * MINUTE)
    assert world.leases[name].ending is None
    view = run_view(world, world.leases[name].uid, NOW + 19 * MINUTE)
    assert (view.because, WHY in view.message) == ("Starting", True)
    turn = _turn(world, NOW + 20 * MINUTE)
    assert world.leases[name].ending is not None
    assert any(WHY in notice.message for notice in turn.notices)


def _given_up(retries: int) -> tuple[World, Lease]:
    """Return an attempt that could not be started, after its pod is gone."""
    world, name = _world(WHY, retries=retries)
    _turn(world, NOW + 20 * MINUTE)
    [pod] = world.pods.values()
    world.drop_pod(pod.key)
    _turn(world, NOW + 21 * MINUTE)
    return world, world.leases[name]


def test_attempt_that_could_not_start_fails_with_the_kubelets_reason() -> None:
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


def test_attempt_that_could_not_start_uses_up_a_retry() -> None:
    world, lease = _given_up(retries=1)
    view = run_view(world, lease.uid, NOW + 21 * MINUTE)
    assert (view.phase, view.because) == (Phase.PENDING, "WorkloadFailed")
    assert WHY in view.message
    assert "0 more of 1 retry" in view.message


def test_all_leases_of_an_unstarted_gang_end_and_one_gives_the_reason() -> None:
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


def test_start_timeout_of_a_run_replaces_the_default() -> None:
    world, name = _world(WHY, start_timeout=5 * MINUTE)
    _turn(world, NOW + 4 * MINUTE)
    assert world.leases[name].ending is None
    _turn(world, NOW + 5 * MINUTE)
    assert world.leases[name].ending is not None


def test_kubelets_reason_is_read_from_the_statuses_of_containers() -> None:
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
    found = gpu_hours(world, now, Period(start=NOW, end=now), by=by, bucket=_day_of_ten_minutes)
    return [
        (row.uses.starting.gpu_ms, row.uses.work.gpu_ms, row.gpu_ms)
        for row in (*found.items, found.total)
    ]


def _day_of_ten_minutes(at: int) -> tuple[str, int]:
    """Return the bucket of an instant; here a day has ten minutes."""
    span = (at - NOW) // (10 * MINUTE)
    return str(span), NOW + (span + 1) * 10 * MINUTE


def test_starting_time_is_on_the_closure_and_separate_in_the_report() -> None:
    world, name = _world(WHY)
    _turn(world, NOW + 4 * MINUTE)
    four = 4 * MINUTE
    assert _hours(world, NOW + 4 * MINUTE)[-1] == (4 * four, 0, 4 * four)
    [pod] = world.pods.values()
    world.put_pod(replace(pod, phase=PodPhase.RUNNING, began_at=NOW + four, waits_for=None))
    assert _hours(world, NOW + 6 * MINUTE)[-1] == (4 * four, 8 * MINUTE, 24 * MINUTE)
    lease = _lease_after_pod_ends(world, name, began_at=NOW + four, at=NOW + 30 * MINUTE)
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


def test_begin_of_a_deleted_pod_is_remembered_until_its_lease_is_closed() -> None:
    world, name = _world(None)
    [pod] = world.pods.values()
    world.put_pod(replace(pod, phase=PodPhase.RUNNING, began_at=NOW + MINUTE))
    world.drop_pod(pod.key)
    _turn(world, NOW + 3 * MINUTE)
    closed = world.leases[name].closed
    assert closed is not None
    assert closed.began == NOW + MINUTE
    assert not world.began_at


def test_pod_that_never_ran_counts_as_starting_until_its_end() -> None:
    _, lease = _given_up(retries=0)
    assert lease.closed is not None
    assert lease.closed.began == lease.closed.at > lease.start


def test_pod_ended_while_waiting_never_ran_whatever_its_exit_code() -> None:
    """A kubelet gives an exit code even to containers that it never started."""
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
def test_closure_does_not_record_a_start_without_delay(began_at: int) -> None:
    world, name = _world(None)
    lease = _lease_after_pod_ends(world, name, began_at=began_at, at=NOW + MINUTE)
    assert lease.closed is not None
    assert lease.closed.began is None
    assert _hours(world, NOW + 2 * MINUTE)[-1] == (0, 4 * MINUTE, 4 * MINUTE)


def test_fast_clock_of_a_node_does_not_put_the_begin_after_the_end() -> None:
    world, name = _world(None)
    lease = _lease_after_pod_ends(world, name, began_at=NOW + 2 * MINUTE, at=NOW + MINUTE)
    assert lease.closed is not None
    assert lease.closed.began == lease.closed.at == NOW + MINUTE


def test_pod_began_when_its_first_main_container_began() -> None:
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
