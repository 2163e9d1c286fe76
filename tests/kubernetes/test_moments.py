"""The leader is lost at random moments, many times, while Runs start and end.

`make soak-kube` plays a hundred moments; this test plays ten, always with the same seed.
"""

import os
import random
import signal
import statistics
import time
from collections.abc import Callable

import pytest
from tests.kubernetes.plane import Controller, Plane, budget, job
from tests.kubernetes.replicas import epoch, holder, start
from tests.kubernetes.wellbeing import check_consistency

MOMENTS = int(os.environ.get("SOAK_MOMENTS", "10"))
SEED = int(os.environ.get("SOAK_SEED", "14"))
WAYS = ("killed", "paused", "stopped")
PATIENCE_S = 60
WITHIN_S = 1.0  # the leader is lost at most this long after Runs are submitted


def _lose(replica: Controller, how: str) -> None:
    match how:
        case "killed":
            replica.process.kill()
            replica.process.wait()
        case "paused":
            replica.process.send_signal(signal.SIGSTOP)
        case _:
            replica.process.terminate()


@pytest.mark.deadline(120 + 60 * MOMENTS)
def test_leader_lost_at_random_moments_is_followed_by_another_replica(
    plane: Plane, record_property: Callable[[str, object], None]
) -> None:
    chance = random.Random(SEED)
    plane.kubelets.add(*(f"n{number}" for number in range(8)))
    replicas = start(plane, "a", "b", "c")
    plane.kubectl.ok("apply", "-f", plane.kubectl.file(budget()))
    took: dict[str, list[float]] = {how: [] for how in WAYS}
    ways = [WAYS[number % len(WAYS)] for number in range(MOMENTS)]
    chance.shuffle(ways)
    for number, how in enumerate(ways):
        names = [f"m{number}-{each}" for each in range(3)]
        jobs = [job(name, 8 * width) for name, width in zip(names, (1, 2, 4), strict=True)]
        plane.kubectl.ok("apply", "-f", plane.kubectl.file(*jobs))
        time.sleep(chance.uniform(0, WITHIN_S))
        first, sealed = holder(plane), epoch(plane)
        began = time.monotonic()
        _lose(replicas[first], how)
        try:
            plane.until(lambda sealed=sealed: epoch(plane) > sealed)
            took[how].append(time.monotonic() - began)
            for name in names:
                run = plane.until_phase(name, "Running")
                plane.exit_all(run["metadata"]["uid"])
            for name in names:
                plane.until_phase(name, "Completed")
        finally:
            if how == "paused":
                replicas[first].process.send_signal(signal.SIGCONT)
        if how != "paused":
            assert replicas[first].process.wait(PATIENCE_S) in (0, -signal.SIGKILL)
            replicas[first] = plane.controller(first)
    leases = plane.all("leases")
    assert {each["status"]["closureReason"] for each in leases} == {"Completed"}
    check_consistency(plane)
    told = [
        f"{how} {len(each)} (median {statistics.median(each):.1f} s, worst {max(each):.1f} s)"
        for how, each in took.items()
        if each
    ]
    record_property("counts", f"fail-over on a cluster, tenure.take 3 s: {', '.join(told)}")
