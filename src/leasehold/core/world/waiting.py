"""Since when a run waits, and which start ended its wait; both follow from the ledger.

A wait begins with the submission, or when the run is requeued. Retries after its own failures and
rejected binds do not begin a new wait (B2). A sweep counts as requeued when a group is requeued
while no other group runs.
"""

from itertools import chain
from typing import assert_never

from leasehold.core.facts import Closed, Record, Run
from leasehold.core.units import Instant
from leasehold.core.world.book import Attempt, UnitHistory
from leasehold.core.world.world import World


class Wait(Record):
    """One wait of a run: its beginning, and the start that ended it."""

    since: Instant
    ended: Instant | None  # None: not started since then


def wait_of(world: World, run: Run) -> Wait:
    """Return the run's present wait; if the run has started, the wait that this start ended."""
    book = world.books.get(run.uid)
    if book is None or not book.units:
        return Wait(since=run.created, ended=None)
    if len(book.units) == 1:
        return _of_one(run, next(iter(book.units.values())))
    attempts = list(chain.from_iterable(unit.attempts for unit in book.units.values()))
    requeued = {each.ended_at for each in attempts if _is_requeued(run, each)}
    since = max((at for at in requeued if not _any_lives(attempts, at)), default=run.created)
    starts = [each.started for each in attempts if each.open or each.ended_at > since]
    starts += [each.started for each in attempts if each.did_not_bind and each.started >= since]
    return Wait(since=since, ended=min(starts, default=None))


def _of_one(run: Run, unit: UnitHistory) -> Wait:
    ended = None
    for attempt in reversed(unit.attempts):
        if _is_requeued(run, attempt):
            return Wait(since=attempt.ended_at, ended=ended)
        ended = attempt.started
    return Wait(since=run.created, ended=ended)


def _is_requeued(run: Run, attempt: Attempt) -> bool:
    """Return whether the attempt ended in such a way that the run waits again from then on."""
    if attempt.open or attempt.did_not_bind or attempt.is_own_failure:
        return False
    match attempt.outcome:
        case Closed.COMPLETED | Closed.TIME_LIMIT | Closed.CANCELED:
            return False
        case Closed.FAIL | Closed.NODE_FAILURE | Closed.RECLAIMED | Closed.RANDOM_PREEMPT:
            return run.spec.checkpoint is not None
        case Closed.SWAP | Closed.SHRINK | Closed.DROP_SPARE | Closed.REFINANCED:
            return True
        case _:
            assert_never(attempt.outcome)


def _any_lives(attempts: list[Attempt], at: Instant) -> bool:
    return any(each.started < at and (each.open or each.ended_at > at) for each in attempts)
