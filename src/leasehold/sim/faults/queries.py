"""Sends queries to the controllers at random moments.

An answer may be outdated, but must not contain uncommitted facts. A query runs between two steps
and outside the processes, so it does not influence the simulation.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from random import Random

from leasehold.adapters.objects.storage import Change
from leasehold.control.questions.answers.books import HeadAnswer
from leasehold.control.questions.answers.leases import LeasesAnswer
from leasehold.core.ledger.verify import Fold
from leasehold.core.objects.access import Caller, CallerRole
from leasehold.shell.queries.query import BadQuestion
from leasehold.sim.faults.processes import Member
from leasehold.sim.kernel import Crashed

EVERY = 300  # steps between two queries, on average
SOON = 6
ANYBODY = Caller(user="anybody", role=CallerRole.ADMIN)


class RandomQueries:
    """Queries the controllers and checks their answers. `committed` returns the state that all
    committed batches add up to."""

    def __init__(
        self, seed: int, committed: Callable[[], Fold], fail: Callable[[str], None]
    ) -> None:
        self._random = Random(f"{seed}/questions")
        self._committed = committed
        self._fail = fail
        self._steps_left = 0
        self._open_after: list[set[str]] = [set()]  # names of open leases after each batch
        self.evaluated: Counter[str] = Counter()

    def on_batch(self, fold: Fold) -> None:
        """Record which leases are open after a committed batch, to compare answers with it."""
        is_open = {name for name, lease in fold.leases.items() if lease.closed is None}
        self._open_after.append(is_open)

    def on_change(self, change: Change) -> None:
        """After a batch was stored, make the next query soon: the batch may be committed by then,
        or not."""
        if change.key[0] == "LedgerBatch":
            self._steps_left = self._random.randrange(1, SOON)

    def after_step(self, everybody: Callable[[], Sequence[Member]]) -> None:
        self._steps_left -= 1
        if self._steps_left > 0:
            return
        self._steps_left = self._random.randrange(1, 2 * EVERY)
        for member in everybody():
            if not member.process.paused:
                self._ask(member)

    def _ask(self, member: Member) -> None:
        head = _answer(member, "ledger-head")
        leases = _answer(member, "leases")
        if not isinstance(head, HeadAnswer) or not isinstance(leases, LeasesAnswer):
            return
        self.evaluated["answers"] += 1
        told = {row.lease for row in leases.items}
        self._check(member.process.name, head, told)

    def _check(self, who: str, head: HeadAnswer, told: set[str]) -> None:
        fold = self._committed()
        if head.seq > fold.seq or fold.digests[head.seq] != head.digest:
            self._fail(f"AnswersAreCommitted: {who} tells of batch {head.seq} "
                       f"({head.digest[:8]}), which was not committed")  # fmt: skip
            return
        is_so = self._open_after[head.seq]
        if told != is_so:
            self._fail(f"AnswersAreCommitted: after batch {head.seq} {who} tells of the leases "
                       f"{sorted(told - is_so)}, and not of {sorted(is_so - told)}")  # fmt: skip


def _answer(member: Member, question: str) -> object:
    """Return the answer to a query if it comes at once. Return None if the query waits or is
    refused."""
    asking = member.plane.questions.answer(ANYBODY, question, {})
    try:
        asking.send(None)
    except StopIteration as done:
        return done.value.found
    except (BadQuestion, Crashed):
        return None
    finally:
        asking.close()
    return None
