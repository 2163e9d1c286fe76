"""The state of a run, derived from its book alone: waiting, live, done or failed, and why.

No phase is stored that the ledger does not imply, so the result is the same after a crash. Used by
the queue, the statuses and the tending of runs.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import assert_never

from leasehold.core.facts import Cause, Closed, Failed, Gang, Phase, Record, Run
from leasehold.core.reservations import State
from leasehold.core.resolutions import CutCause
from leasehold.core.units import Instant, Millis
from leasehold.core.world.book import WHOLE, Attempt, UnitHistory
from leasehold.core.world.width import desired_gpus, starting_gpus
from leasehold.core.world.world import World


class UnitStanding(StrEnum):
    """The state of a unit: waiting to start, live, ended well, or failed for good."""

    WAITING = "waiting"
    LIVE = "live"
    DONE = "done"
    FAILED = "failed"


class UnitState(Record):
    """The state of a unit; `why` explains a wait after a failure, or the failure itself."""

    standing: UnitStanding
    why: str = ""
    retry_at: Instant = 0
    rejected: int = 0  # binds rejected in a row


LIVE = UnitState(standing=UnitStanding.LIVE)
DONE = UnitState(standing=UnitStanding.DONE)
BIND_FAILING = "BindFailing"
NEVER_STARTED = -2  # a key that no unit has


def unit_keys(run: Run) -> Sequence[int]:
    """Return the keys of the units that a run should have: the run as a whole, or its groups."""
    if run.spec.gang is Gang.RUN:
        return (WHOLE,)
    width = max(starting_gpus(run.spec), desired_gpus(run.spec))
    return range(width // run.spec.group_gpus)


def unstarted(world: World, run: Run) -> UnitState | None:
    """Return the state that all units of a run share if none ever started; None if one did.

    This is a shortcut: a sweep has thousands of units, and thousands of sweeps may wait.
    """
    book = world.books.get(run.uid)
    if book is not None and book.units:
        return None
    return where_is(world, run, NEVER_STARTED)


def where_is(world: World, run: Run, key: int) -> UnitState:
    """Return the state of one unit."""
    book = world.books.get(run.uid)
    unit = book.units.get(key) if book else None
    where = _standing(world, run, unit)
    if where.standing is UnitStanding.WAITING and (run.spec.stop or run.deleting):
        return UnitState(standing=UnitStanding.FAILED, why=Failed.CANCELED)
    return where


def units_of(world: World, run: Run) -> dict[int, UnitState]:
    """Return the state of every unit that the run should have or ever had."""
    book = world.books.get(run.uid)
    had = book.units if book else {}
    wanted = unit_keys(run)
    world.steps.take(len(had) + len(wanted))
    # Units without a history share one state, so it is computed once.
    found = dict.fromkeys(wanted, where_is(world, run, NEVER_STARTED))
    for key in had:
        found[key] = where_is(world, run, key)
    return dict(sorted(found.items())) if had else found


def phase_of(world: World, run: Run) -> tuple[Phase, str]:
    """Return the phase, and the reason if it is Failed.

    A run with open leases counts as Running here, even if its pods are still being bound.
    """
    alike = unstarted(world, run)
    units = {NEVER_STARTED: alike} if alike is not None else units_of(world, run)
    standings = {where.standing for where in units.values()}
    if UnitStanding.LIVE in standings:
        return Phase.RUNNING, ""
    if UnitStanding.WAITING in standings:
        return Phase.PENDING, ""
    failed = [where.why for where in units.values() if where.standing is UnitStanding.FAILED]
    return (Phase.FAILED, failed[0]) if failed else (Phase.COMPLETED, "")


def is_over(world: World, run: Run) -> bool:
    return phase_of(world, run)[0] in (Phase.COMPLETED, Phase.FAILED)


def _standing(world: World, run: Run, unit: UnitHistory | None) -> UnitState:
    last = unit.last if unit is not None else None
    if unit is None or last is None:
        return UnitState(standing=UnitStanding.WAITING)
    if last.open:
        return LIVE
    match last.outcome:
        case Closed.COMPLETED:
            return DONE
        case Closed.FAIL:
            return _after_failure(world, run, unit, last)
        case Closed.NODE_FAILURE:
            return _requeued_or(run, Failed.NODE)
        case Closed.RECLAIMED:
            return _requeued_or(run, Failed.RECLAIMED)
        case Closed.RANDOM_PREEMPT:
            return _requeued_or(run, _drawn(world, last))
        case Closed.SWAP:
            # It left a drained node and is requeued.
            return UnitState(standing=UnitStanding.WAITING)
        case Closed.TIME_LIMIT:
            return UnitState(standing=UnitStanding.FAILED, why=Failed.TIME_LIMIT)
        case Closed.CANCELED:
            return UnitState(standing=UnitStanding.FAILED, why=Failed.CANCELED)
        case Closed.SHRINK | Closed.DROP_SPARE | Closed.REFINANCED:
            # Only passing closures: an elastic group that was given up may start again.
            return UnitState(standing=UnitStanding.WAITING)
        case _:
            assert_never(last.outcome)


def _requeued_or(run: Run, failed: Failed) -> UnitState:
    if run.spec.checkpoint is not None:
        return UnitState(standing=UnitStanding.WAITING)
    return UnitState(standing=UnitStanding.FAILED, why=failed)


def _drawn(world: World, last: Attempt) -> Failed:
    assert last.why is not None, last.number
    name = world.resolution_of_seed.get(last.why.seed)
    if name is not None and world.resolutions[name].cause is CutCause.OVERDRAFT:
        return Failed.OVERDRAWN
    return Failed.RANDOM_PREEMPT


def _after_failure(world: World, run: Run, unit: UnitHistory, last: Attempt) -> UnitState:
    policy = world.policy
    if last.cause is Cause.DELETED:
        return _requeued_or(run, Failed.NODE)
    if not last.is_own_failure:
        count = unit.rejected_in_a_row()
        wait = backoff(policy.bind_backoff, policy.bind_backoff_max, count)
        if count >= policy.bind_attempts:
            blocked_at = world.memory.blocked_binds.get(run.uid, world.node_changes)
            # The failing binds may be the fault of a node: any node change ends the wait (B3).
            is_over = blocked_at != world.node_changes or _was_planned_since(world, run)
            wait = 0 if is_over else policy.bind_blocked_for
        return UnitState(
            standing=UnitStanding.WAITING,
            why=BIND_FAILING,
            retry_at=last.ended_at + wait,
            rejected=count,
        )
    failures = unit.own_failures()
    if failures > run.spec.retries:
        return UnitState(standing=UnitStanding.FAILED, why=Failed.WORKLOAD)
    wait = backoff(policy.retry_backoff, policy.retry_backoff_max, failures)
    return UnitState(
        standing=UnitStanding.WAITING, why=Failed.WORKLOAD, retry_at=last.ended_at + wait
    )


def _was_planned_since(world: World, run: Run) -> bool:
    """Return whether the run was planned again after its binds were blocked.

    That shows that a node changed before the controller restarted. Always False for a sweep, whose
    reservation may be for other groups.
    """
    found = world.reservations.get(world.reservation_of.get(run.uid, ""))
    return run.spec.gang is Gang.RUN and found is not None and found.state is State.PENDING


def backoff(first: Millis, most: Millis, count: int) -> Millis:
    """Return the back-off after `count` failures: `first`, doubled with each further one, at most
    `most`."""
    assert count >= 1
    return min(most, first << min(count - 1, 32))
