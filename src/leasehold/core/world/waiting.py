"""Since when a run waits, and which start ended its wait. The ledger tells both.

A wait begins with the submission, or when the run is requeued. Retries after a failure of its own
and rejected binds begin no new one. A sweep is requeued when the last of its groups is.
"""

from itertools import chain

from leasehold.core.facts import Record, Run
from leasehold.core.units import Instant
from leasehold.core.world.book import Attempt, UnitHistory
from leasehold.core.world.world import World


class Wait(Record):
    since: Instant
    ended: Instant | None  # None: it has not started since then


def wait_of(world: World, run: Run) -> Wait:
    """The present wait of a run, or its last one if it lives."""
    book = world.books.get(run.uid)
    if book is None or not book.units:
        return Wait(since=run.created, ended=None)
    if len(book.units) == 1:
        return _of_one(run, next(iter(book.units.values())))
    attempts = list(chain.from_iterable(unit.attempts for unit in book.units.values()))
    requeued = {each.ended_at for each in attempts if _is_requeued(each)}
    since = max((at for at in requeued if not _any_lives(attempts, at)), default=run.created)
    starts = [each.started for each in attempts if each.open or each.ended_at > since]
    starts += [each.started for each in attempts if each.did_not_bind and each.started >= since]
    return Wait(since=since, ended=min(starts, default=None))


def _of_one(run: Run, unit: UnitHistory) -> Wait:
    ended = None
    for attempt in reversed(unit.attempts):
        if _is_requeued(attempt):
            return Wait(since=attempt.ended_at, ended=ended)
        ended = attempt.started
    return Wait(since=run.created, ended=ended)


def _is_requeued(attempt: Attempt) -> bool:
    """It ended, and neither a node that rejected it nor the workload itself is why."""
    return not attempt.open and not attempt.did_not_bind and not attempt.is_own_failure


def _any_lives(attempts: list[Attempt], at: Instant) -> bool:
    return any(each.started <= at and (each.open or each.ended_at > at) for each in attempts)
