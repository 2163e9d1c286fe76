"""The use of GPU-time, by how a lease ended or by the state of its pod."""

import pytest
from msgspec.structs import replace
from tests.questions.played import FIRST_DAY, Played

from leasehold.control.questions.uses import Use, use_of
from leasehold.core.facts import Cause, Closed, Closure, ClosureReason, Lease, PodPhase, Role

ENDED: list[tuple[Closed, Cause | None, Use]] = [
    (Closed.COMPLETED, None, Use.WORK),
    (Closed.FAIL, Cause.EXIT, Use.FAILED),
    (Closed.FAIL, Cause.DELETED, Use.FAILED),
    (Closed.FAIL, Cause.REJECTED, Use.STARTING),
    (Closed.FAIL, Cause.REFUSED, Use.STARTING),
    (Closed.NODE_FAILURE, None, Use.FAILED),
    (Closed.SWAP, None, Use.WORK),
    (Closed.SHRINK, None, Use.WORK),
    (Closed.DROP_SPARE, None, Use.WORK),
    (Closed.RECLAIMED, None, Use.CUT),
    (Closed.RANDOM_PREEMPT, None, Use.CUT),
    (Closed.REFINANCED, None, Use.WORK),
    (Closed.TIME_LIMIT, None, Use.WORK),
    (Closed.CANCELED, None, Use.WORK),
]


@pytest.fixture(scope="module")
def played() -> Played:
    return Played(FIRST_DAY, "20m")


def an_open_lease(played: Played) -> Lease:
    return next(each for each in played.world.leases.values() if each.is_open and each.pod)


@pytest.mark.parametrize(("reason", "cause", "use"), ENDED)
def test_use_of_a_closed_lease_follows_from_its_closure(
    played: Played, reason: Closed, cause: Cause | None, use: Use
) -> None:
    closed = Closure(why=ClosureReason(reason=reason), at=played.now, batch=1, cause=cause)
    assert use_of(played.world, replace(an_open_lease(played), closed=closed)) is use


def test_table_of_gpu_time_uses_has_every_closure_reason() -> None:
    assert {reason for reason, _, _ in ENDED} == set(Closed)


def test_closed_spare_counts_as_spare(played: Played) -> None:
    closed = Closure(why=ClosureReason(reason=Closed.NODE_FAILURE), at=played.now, batch=1)
    spare = replace(an_open_lease(played), role=Role.SPARE, pod="", closed=closed)
    assert use_of(played.world, spare) is Use.SPARE


def test_lease_counts_as_starting_until_its_pod_runs(played: Played) -> None:
    world, lease = played.world, an_open_lease(played)
    pod = world.pods[lease.pod_key]
    assert use_of(world, lease) is Use.WORK
    world.put_pod(replace(pod, phase=PodPhase.PENDING))
    assert use_of(world, lease) is Use.STARTING
    world.put_pod(pod)
