"""When a run's wait began, and which start ended it."""

import pytest
from msgspec.structs import replace
from tests.properties.worlds import NOW, a_budget, a_lease, a_node, a_run, a_world

from leasehold.core.facts import Cause, Closed, Closure, ClosureReason, Gang, Run
from leasehold.core.policy import Policy
from leasehold.core.preemption.victims import protected_until
from leasehold.core.units import DAY, HOUR, MINUTE
from leasehold.core.world.waiting import Wait, wait_of
from leasehold.core.world.world import World

CREATED = NOW - 10 * HOUR
STARTED = NOW - 5 * HOUR
ENDED = NOW - 3 * HOUR
AGAIN = NOW - 2 * HOUR

WITH, WITHOUT = 30 * MINUTE, None  # a checkpoint
# how an attempt ended, its cause, with or without a checkpoint, whether a new wait begins
ENDS = [
    (Closed.RANDOM_PREEMPT, None, WITH, True),
    (Closed.NODE_FAILURE, None, WITH, True),
    (Closed.RECLAIMED, None, WITH, True),
    (Closed.FAIL, Cause.DELETED, WITH, True),
    (Closed.SHRINK, None, WITHOUT, True),
    (Closed.SWAP, None, WITHOUT, True),
    (Closed.RANDOM_PREEMPT, None, WITHOUT, False),
    (Closed.NODE_FAILURE, None, WITHOUT, False),
    (Closed.RECLAIMED, None, WITHOUT, False),
    (Closed.FAIL, Cause.DELETED, WITHOUT, False),
    (Closed.FAIL, Cause.EXIT, WITH, False),
    (Closed.FAIL, Cause.UNSTARTED, WITH, False),
    (Closed.FAIL, Cause.REJECTED, WITH, False),
    (Closed.COMPLETED, None, WITH, False),
    (Closed.TIME_LIMIT, None, WITH, False),
    (Closed.CANCELED, None, WITH, False),
]


class Story:
    """Attempts of one run, each with one lease for each of its groups."""

    def __init__(
        self, *, groups: int = 1, checkpoint: int | None = WITH, policy: Policy | None = None
    ) -> None:
        self.world: World = a_world([a_node("n0")], [a_budget("t")], policy=policy)
        gang = Gang.GROUP if groups > 1 else Gang.RUN
        run = a_run("r", groups=groups, group_gpus=1, pod_gpus=1, gang=gang, created=CREATED)
        self.run: Run = replace(run, spec=replace(run.spec, checkpoint=checkpoint))
        self.world.put_run(self.run)
        self._batch = 0

    def start(self, at: int, *, group: int = 0, attempt: int = 1) -> str:
        self._batch += 1
        lease = a_lease(self.run, "n0", [group], batch=self._batch, index=0, group=group, start=at)
        self.world.fold_open(replace(lease, attempt=attempt))
        return lease.name

    def end(self, name: str, at: int, reason: Closed, cause: Cause | None = None) -> None:
        self._batch += 1
        why = ClosureReason(reason=reason)
        self.world.fold_close(name, Closure(why=why, at=at, cause=cause, batch=self._batch))

    @property
    def wait(self) -> Wait:
        return wait_of(self.world, self.run)


def test_wait_lasts_from_submission_to_the_first_start() -> None:
    story = Story()
    assert story.wait == Wait(since=CREATED, ended=None)
    story.start(STARTED)
    assert story.wait == Wait(since=CREATED, ended=STARTED)


@pytest.mark.parametrize(("reason", "cause", "checkpoint", "is_new"), ENDS)
def test_new_wait_begins_only_when_a_run_is_requeued(
    reason: Closed, cause: Cause | None, checkpoint: int | None, is_new: bool
) -> None:
    story = Story(checkpoint=checkpoint)
    story.end(story.start(STARTED), ENDED, reason, cause)
    if is_new:
        assert story.wait == Wait(since=ENDED, ended=None)
        story.start(AGAIN, attempt=2)
        assert story.wait == Wait(since=ENDED, ended=AGAIN)
    else:
        assert story.wait == Wait(since=CREATED, ended=STARTED)
        story.start(AGAIN, attempt=2)
        assert story.wait == Wait(since=CREATED, ended=STARTED)


def test_wait_ends_with_the_first_start_even_if_its_bind_is_rejected() -> None:
    """Protection begins with the first start, even if its bind was rejected."""
    story = Story()
    story.end(story.start(STARTED), ENDED, Closed.RANDOM_PREEMPT)
    story.end(story.start(AGAIN, attempt=2), AGAIN + MINUTE, Closed.FAIL, Cause.REJECTED)
    assert story.wait == Wait(since=ENDED, ended=AGAIN)
    story.start(AGAIN + 2 * MINUTE, attempt=3)
    assert story.wait == Wait(since=ENDED, ended=AGAIN)


def test_sweep_waits_again_only_after_its_last_group_was_requeued() -> None:
    story = Story(groups=2)
    first, second = story.start(STARTED), story.start(STARTED + MINUTE, group=1)
    story.end(first, ENDED, Closed.RANDOM_PREEMPT)
    assert story.wait == Wait(since=CREATED, ended=STARTED), "the other group lives"
    story.end(second, ENDED + MINUTE, Closed.RANDOM_PREEMPT)
    assert story.wait == Wait(since=ENDED + MINUTE, ended=None)
    story.start(AGAIN, attempt=2)
    assert story.wait == Wait(since=ENDED + MINUTE, ended=AGAIN)


def test_later_start_of_a_group_neither_begins_nor_ends_a_wait() -> None:
    story = Story(groups=2)
    story.start(STARTED)
    story.start(AGAIN, group=1)
    assert story.wait == Wait(since=CREATED, ended=STARTED)


def test_group_that_fails_by_itself_begins_no_wait_of_its_sweep() -> None:
    story = Story(groups=2)
    story.end(story.start(STARTED), ENDED, Closed.FAIL, Cause.EXIT)
    story.end(story.start(STARTED, group=1), ENDED + MINUTE, Closed.COMPLETED)
    assert story.wait.since == CREATED


def test_groups_that_end_at_the_same_time_begin_one_wait() -> None:
    story = Story(groups=2)
    names = [story.start(STARTED, group=group) for group in range(2)]
    for name in names:
        story.end(name, ENDED, Closed.RANDOM_PREEMPT)
    assert story.wait == Wait(since=ENDED, ended=None)


TENURES = [
    (None, WITHOUT, 2 * HOUR),
    (None, 30 * MINUTE, 2 * HOUR),
    (None, 3 * HOUR, 6 * HOUR),
    (None, 20 * HOUR, DAY),
    (HOUR, 3 * HOUR, HOUR),
    (0, WITH, 0),
]


@pytest.mark.parametrize(("configured", "checkpoint", "expected"), TENURES)
def test_protection_runs_from_the_start_that_ended_the_wait(
    configured: int | None, checkpoint: int | None, expected: int
) -> None:
    story = Story(checkpoint=checkpoint, policy=Policy(min_tenure=configured))
    assert protected_until(story.world, story.run) is None
    story.start(STARTED)
    assert protected_until(story.world, story.run) == STARTED + expected
