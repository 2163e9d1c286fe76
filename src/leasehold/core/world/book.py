"""The history of one run in the ledger: its attempts, how each ended, what was spent.

A *unit* starts and ends together: the whole run (key -1), or one group of a `gang: Group` run (key:
the group's index). The closure with the highest rank decides how an attempt ended, so that the
order in which closures are folded does not matter.
"""

from typing import assert_never

from leasehold.core.facts import (
    Cause,
    Closed,
    ClosureReason,
    EnvelopeKey,
    Lease,
    Opened,
    Relation,
    Role,
    parse_why,
)
from leasehold.core.ledger.checkpoint import CarriedAttempt, CarriedBook
from leasehold.core.units import GpuMs, Instant

WHOLE = -1

Settled = dict[tuple[EnvelopeKey, Relation], GpuMs]

# Closures that end a lease while its attempt goes on do not decide how the attempt ended. (A pod
# that leaves a drained node also closes with `Swap`: if nothing follows, the attempt was requeued.)
_PASSING = frozenset({Closed.SHRINK, Closed.DROP_SPARE, Closed.SWAP, Closed.REFINANCED})
# A spare may end alone (dropped, consumed, lost with its node), but these reasons end the whole
# gang, of which a spare may be all that is left while a lost pod waits to take it over.
_OF_THE_GANG = frozenset({Closed.RANDOM_PREEMPT, Closed.TIME_LIMIT, Closed.CANCELED})


def _gravity(reason: Closed) -> int:
    """Return the rank of a reason: the closure with the highest rank decides how an attempt
    ended."""
    match reason:
        case Closed.COMPLETED:
            return -1
        case Closed.SWAP | Closed.SHRINK | Closed.DROP_SPARE | Closed.REFINANCED:
            return 0  # only a `Swap` off a drained node decides anything here
        case Closed.FAIL:
            return 1
        case Closed.NODE_FAILURE:
            return 2
        case Closed.RECLAIMED:
            return 3
        case Closed.RANDOM_PREEMPT:
            return 4
        case Closed.TIME_LIMIT:
            return 5
        case Closed.CANCELED:
            return 6
        case _:
            assert_never(reason)


_GRAVITY = {reason: _gravity(reason) for reason in Closed}
_BLAME = {
    None: 0,
    Cause.REFUSED: 1,
    Cause.REJECTED: 2,
    Cause.DELETED: 3,
    Cause.EXIT: 4,
    Cause.UNSTARTED: 5,
}


class Attempt:
    """One set of Start leases of a unit, and how it ended (B5)."""

    __slots__ = (
        "batch",
        "cause",
        "completed",
        "ended_at",
        "number",
        "open",
        "protected",
        "started",
        "verdict",
        "why",
    )

    def __init__(self, number: int, started: Instant, batch: int) -> None:
        self.number = number
        self.started = started
        self.batch = batch
        self.open = 0  # leases
        self.verdict = (-1, -1, -1)  # (batch of the decision, gravity, blame); the maximum wins
        self.why: ClosureReason | None = None
        self.cause: Cause | None = None
        self.ended_at: Instant = started
        self.protected = False  # started by a Resolution
        self.completed = 0  # leases of pods that succeeded

    def carried(self, unit: int) -> CarriedAttempt:
        assert self.open == 0, self.number
        return CarriedAttempt(
            unit=unit,
            number=self.number,
            started=self.started,
            batch=self.batch,
            verdict=self.verdict,
            closure="" if self.why is None else str(self.why),
            cause=self.cause,
            ended_at=self.ended_at,
            protected=self.protected,
            completed=self.completed,
        )

    @classmethod
    def from_carried(cls, carried: CarriedAttempt) -> "Attempt":
        new = cls(carried.number, carried.started, carried.batch)
        new.verdict = carried.verdict
        new.why = parse_why(carried.closure) if carried.closure else None
        new.cause = carried.cause
        new.ended_at = carried.ended_at
        new.protected = carried.protected
        new.completed = carried.completed
        return new

    @property
    def outcome(self) -> Closed:
        """Return how the attempt ended. The attempt must have no open leases."""
        assert self.open == 0, self.number
        return Closed.SHRINK if self.why is None else self.why.reason

    @property
    def was_rejected(self) -> bool:
        """Return whether the attempt ended because its bind could not be completed."""
        if self.open or self.outcome is not Closed.FAIL:
            return False
        return self.cause is not Cause.DELETED and not self.is_own_failure

    @property
    def is_own_failure(self) -> bool:
        """Return whether the attempt failed by the workload's own fault, which uses up a retry
        (B5)."""
        if self.open or self.outcome is not Closed.FAIL:
            return False
        return self.cause in (Cause.EXIT, Cause.UNSTARTED)

    @property
    def is_taken_back(self) -> bool:
        """Return whether a node rejected a pod of the attempt while other pods are still going."""
        return self.open > 0 and self.cause is Cause.REJECTED

    @property
    def did_not_bind(self) -> bool:
        """Return whether the attempt's bind failed, even if not all of its pods are gone yet."""
        return self.was_rejected or self.is_taken_back


class UnitHistory:
    """The attempts of one unit, oldest first."""

    __slots__ = ("attempts",)

    def __init__(self) -> None:
        self.attempts: list[Attempt] = []

    @property
    def last(self) -> Attempt | None:
        return self.attempts[-1] if self.attempts else None

    def was_ended_at(self, at: Instant) -> bool:
        """Return whether an attempt ended exactly at `at`; the next may begin at the same
        instant."""
        return any(each.ended_at == at and not each.open for each in self.attempts)

    def own_failures(self) -> int:
        """Return how many attempts failed by the workload's own fault."""
        return sum(1 for each in self.attempts if each.is_own_failure)

    def rejected_in_a_row(self) -> int:
        """Return how many binds in a row, up to now, could not be completed (B3)."""
        return sum(1 for each in self.failed_binds() if each.was_rejected)

    def failed_binds(self) -> list[Attempt]:
        """Return the last attempts in a row that failed to bind, including one that is ending
        now."""
        found: list[Attempt] = []
        for each in reversed(self.attempts):
            if not each.did_not_bind:
                break
            found.append(each)
        return found

    def is_of_a_resolution(self) -> bool:
        """Return whether the unit's present start is one for which a Resolution made room.

        This is so if a Resolution started the newest attempt. It is also so if a Resolution started
        an earlier one and every attempt since then was rejected: the Resolution's places then go to
        the first start that holds.
        """
        for each in reversed(self.attempts):
            if each is not self.last and not each.was_rejected:
                return False
            if each.protected:
                return True
        return False


class Book:
    """All units of one run by key, and the totals of the run."""

    __slots__ = ("cuts", "names", "resized_at", "resolved_in", "settled", "swapped_at", "units")

    def __init__(self) -> None:
        self.units: dict[int, UnitHistory] = {}
        self.names: list[str] = []  # all its leases, in ledger order
        self.settled: dict[tuple[EnvelopeKey, Relation], GpuMs] = {}
        self.cuts: set[tuple[int, int]] = set()  # (unit, attempt) pairs that were drawn
        self.resolved_in: list[int] = []  # batches whose Resolution names it as beneficiary
        self.resized_at: Instant | None = None  # last voluntary grow or shrink
        self.swapped_at: Instant | None = None  # last swap, resize or loss of a pod in a gang

    @property
    def attempt(self) -> int:
        """Return the highest attempt number of any unit."""
        return max((unit.last.number for unit in self.units.values() if unit.last), default=0)

    @property
    def started(self) -> Instant | None:
        """Return when the newest attempt began."""
        newest = [unit.last for unit in self.units.values() if unit.last]
        return max((each.started for each in newest), default=None)

    def starts_by_resolution(self) -> list[Instant]:
        """Return the instants of starts that a Resolution made room for and that were not rejected.

        If all binds of the resolved start were rejected, the next start of any group that was not
        rejected counts instead, because it uses the same places.
        """
        numbered = [(key, each) for key, unit in self.units.items() for each in unit.attempts]
        if not any(each.protected for _, each in numbered):
            return []
        found: list[Instant] = []
        was_made = False
        for _, each in sorted(numbered, key=lambda pair: (pair[1].batch, pair[0], pair[1].number)):
            was_made = was_made or each.protected
            if not each.did_not_bind:
                if was_made:
                    found.append(each.started)
                was_made = False
        return found

    def most_alive(self, *, since: Instant, but: int) -> int:
        """Return the largest number of units, without the unit `but`, alive at one time from
        `since` on.

        Attempts that did not bind do not count.
        """
        lives = [
            each
            for key, unit in self.units.items()
            for each in unit.attempts
            if key != but and not each.did_not_bind and (each.open or each.ended_at > since)
        ]
        return max(
            sum(each.started <= at and bool(each.open or at < each.ended_at) for each in lives)
            for at in {since, *(each.started for each in lives if each.started > since)}
        )

    @property
    def ended_at(self) -> Instant | None:
        attempts = [unit.last for unit in self.units.values() if unit.last]
        return max((each.ended_at for each in attempts), default=None)

    def attempt_of(self, lease: Lease, unit: int) -> Attempt | None:
        found = self.units.get(unit)
        if found is None:
            return None
        for each in reversed(found.attempts):
            if each.number == lease.attempt:
                return each
        return None

    def open(self, lease: Lease, unit: int) -> Attempt:
        """Add an opened lease to its attempt, and return the attempt."""
        self.names.append(lease.name)
        attempt = self.attempt_of(lease, unit)
        if attempt is None:
            attempts = self.units.setdefault(unit, UnitHistory()).attempts
            place = len(attempts)
            while place and attempts[place - 1].number > lease.attempt:
                place -= 1  # later attempts without leases were carried over
            before = attempts[place - 1].batch if place else -1
            attempt = Attempt(lease.attempt, lease.start, lease.batch)
            attempt.protected = any(
                before < batch <= lease.batch and not self._has_started(batch, lease.batch)
                for batch in self.resolved_in
            )
            attempts.insert(place, attempt)
        attempt.open += 1
        if lease.reason is Opened.GROW:
            self.resized_at = max(self.resized_at or 0, lease.start)
        if lease.reason in (Opened.GROW, Opened.SWAP):
            self.swapped_at = max(self.swapped_at or 0, lease.start)
        return attempt

    def _has_started(self, since: int, before: int) -> bool:
        """Return whether any attempt started in the batches from `since` up to, but not including,
        `before`.

        Such an attempt used the Resolution's places. Groups that start later do not count as
        started by the Resolution.
        """
        return any(
            since <= attempt.batch < before
            for unit in self.units.values()
            for attempt in unit.attempts
        )

    def mark(self, lease: Lease, *, voluntary: bool) -> None:
        """Note that a lease of the run was marked as ending.

        A group that is given up counts as a resize for restarts in place (E3), even if it was
        forced. Only a voluntary one delays the next resize (E1).
        """
        assert lease.ending is not None, lease.name
        why = lease.ending.why
        if why.reason in (Closed.SHRINK, Closed.SWAP):
            self.swapped_at = max(self.swapped_at or 0, lease.ending.at)
            if voluntary and why.reason is Closed.SHRINK and not why.drained_node:
                self.resized_at = max(self.resized_at or 0, lease.ending.at)

    def close(self, lease: Lease, unit: int) -> None:
        """Add the cost of a closed lease, and let its closure take part in deciding how its attempt
        ended."""
        closed = lease.closed
        assert closed is not None, lease.name
        key = (lease.payer, lease.relation)
        self.settled[key] = self.settled.get(key, 0) + lease.gpu_ms(closed.at)
        attempt = self.attempt_of(lease, unit)
        assert attempt is not None, lease.name
        attempt.open -= 1
        attempt.ended_at = max(attempt.ended_at, closed.at)
        reason = closed.why.reason
        if reason is Closed.RANDOM_PREEMPT:
            self.cuts.add((unit, lease.attempt))
        moved = reason is Closed.SWAP and lease.role is not Role.SPARE
        if reason in _PASSING and not moved:
            return
        if lease.role is Role.SPARE and reason not in _OF_THE_GANG:
            return
        if unit == WHOLE and (
            moved or reason is Closed.NODE_FAILURE or closed.cause is Cause.DELETED
        ):
            # The other pods notice the loss now, before a spare or a smaller width repairs it.
            self.swapped_at = max(self.swapped_at or 0, closed.at)
        # An ending lease was decided when it was marked, however long its pod took to go.
        decided_in = lease.ending.batch if lease.ending else closed.batch
        attempt.completed += reason is Closed.COMPLETED
        verdict = (decided_in, _GRAVITY[reason], _BLAME[closed.cause])
        if verdict > attempt.verdict:
            attempt.verdict = verdict
            attempt.why, attempt.cause = closed.why, closed.cause

    # What stays when leases are archived.

    def carried(
        self, before: CarriedBook, attempts: set[tuple[int, int]], settled: Settled
    ) -> CarriedBook:
        """Return `before`, extended by these (unit, number) attempts and the cost of their leases,
        `settled`."""
        sums = {(payer, relation): amount for payer, relation, amount in before.settled}
        for key, amount in settled.items():
            sums[key] = sums.get(key, 0) + amount
        told = {(each.unit, each.number) for each in before.attempts} | attempts
        return CarriedBook(
            attempts=tuple(
                each.carried(key)
                for key, unit in self.units.items()
                for each in unit.attempts
                if (key, each.number) in told
            ),
            settled=tuple((payer, relation, sums[payer, relation]) for payer, relation in sums),
            cuts=tuple(sorted(each for each in self.cuts if each in told)),
            resized_at=self.resized_at,
            swapped_at=self.swapped_at,
        )

    def carry(self, carried: CarriedBook) -> None:
        """Load what is left of archived leases into this empty book, before any other lease is
        folded."""
        assert not self.units, "a book begins with what is carried"
        for each in carried.attempts:
            self.units.setdefault(each.unit, UnitHistory()).attempts.append(
                Attempt.from_carried(each)
            )
        self.settled = {(payer, relation): amount for payer, relation, amount in carried.settled}
        self.cuts = set(carried.cuts)
        self.resized_at = carried.resized_at
        self.swapped_at = carried.swapped_at
