"""What GPU-time was for, by how a lease ended, or by what its pod does."""

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
def test_how_it_ended(played: Played, reason: Closed, cause: Cause | None, use: Use) -> None:
    closed = Closure(why=ClosureReason(reason=reason), at=played.now, batch=1, cause=cause)
    assert use_of(played.world, replace(an_open_lease(played), closed=closed)) is use


def test_every_reason_is_in_the_table() -> None:
    assert {reason for reason, _, _ in ENDED} == set(Closed)


def test_a_spare_is_a_spare_however_it_ends(played: Played) -> None:
    closed = Closure(why=ClosureReason(reason=Closed.NODE_FAILURE), at=played.now, batch=1)
    spare = replace(an_open_lease(played), role=Role.SPARE, pod="", closed=closed)
    assert use_of(played.world, spare) is Use.SPARE


def test_a_pod_that_does_not_run_yet_is_starting(played: Played) -> None:
    world, lease = played.world, an_open_lease(played)
    pod = world.pods[lease.pod_key]
    assert use_of(world, lease) is Use.WORK
    world.put_pod(replace(pod, phase=PodPhase.PENDING))
    assert use_of(world, lease) is Use.STARTING
    world.put_pod(pod)
