"""An attempt's outcome is the gravest closure of its leases, in whatever order they close."""

from itertools import permutations

import pytest
from msgspec.structs import replace
from tests.properties.worlds import NOW, a_lease, a_run

from leasehold.core.facts import (
    Cause,
    Closed,
    Closure,
    ClosureReason,
    Ending,
    Lease,
    Opened,
    Role,
    parse_why,
)
from leasehold.core.units import HOUR
from leasehold.core.world.book import WHOLE, Book

RUN = a_run("r", groups=4)
EXIT, REJECTED = Cause.EXIT, Cause.REJECTED


def closed(index: int, said: str) -> Lease:
    """Return a lease that closed as `said` describes.

    `Fail/Exit@7` was decided in batch 7; without `@` it was decided in batch 9, which closed it.
    """
    said, _, batch = said.partition("@")
    closure, _, cause = said.partition("/")
    role = Role.SPARE if closure.startswith("spare ") else Role.ACTIVE
    closure = closure.removeprefix("spare ")
    lease = a_lease(RUN, "n0", [index], batch=1, index=index, pod=index, role=role)
    ending = (
        Ending(why=parse_why(closure), deadline=NOW, batch=int(batch), at=NOW) if batch else None
    )
    blamed = Cause(cause) if cause else None
    done = Closure(why=parse_why(closure), at=NOW, cause=blamed, batch=9)
    return replace(lease, closed=done, ending=ending)


# how each lease closed                                      the attempt's outcome and cause
OUTCOMES = [
    (["Completed", "Completed"], (Closed.COMPLETED, None)),
    (["Completed", "Fail/Exit"], (Closed.FAIL, EXIT)),
    (["Fail/Rejected", "Fail/Exit", "Fail"], (Closed.FAIL, EXIT)),
    (["Fail/Rejected", "Fail/Unstarted", "Fail"], (Closed.FAIL, Cause.UNSTARTED)),
    (["Fail/Rejected", "Completed"], (Closed.FAIL, REJECTED)),
    (["NodeFailure", "Fail/Exit"], (Closed.NODE_FAILURE, None)),
    (["NodeFailure", "Canceled", "Completed"], (Closed.CANCELED, None)),
    (["RandomPreempt(ab)", "NodeFailure", "Completed"], (Closed.RANDOM_PREEMPT, None)),
    (["TimeLimit", "RandomPreempt(ab)"], (Closed.TIME_LIMIT, None)),
    (["Shrink", "Completed", "spare DropSpare"], (Closed.COMPLETED, None)),
    (["spare Swap", "Refinanced", "Shrink"], (Closed.SHRINK, None)),
    (["Swap(n0)@9", "Swap(n0)@9", "spare Swap(n0)@9"], (Closed.SWAP, None)),
    (["Swap(n0)@9", "Completed"], (Closed.SWAP, None)),
    (["Swap(n0)@7", "Completed"], (Closed.COMPLETED, None)),
    (["Swap(n0)@9", "Fail/Exit"], (Closed.FAIL, EXIT)),
    (["Shrink(n0)@7", "spare DropSpare(n0)@7", "Completed"], (Closed.COMPLETED, None)),
    (["spare NodeFailure", "Completed"], (Closed.COMPLETED, None)),
    (["Canceled@3", "NodeFailure@4"], (Closed.NODE_FAILURE, None)),
    (["Fail/Exit", "TimeLimit@3"], (Closed.FAIL, EXIT)),
]


@pytest.mark.parametrize(("said", "outcome"), OUTCOMES, ids=[" ".join(row[0]) for row in OUTCOMES])
def test_attempt_outcome_does_not_depend_on_order_leases_close(
    said: list[str], outcome: tuple[Closed, Cause | None]
) -> None:
    leases = [closed(index, each) for index, each in enumerate(said)]
    for order in permutations(leases):
        book = Book()
        for lease in leases:
            book.open(replace(lease, closed=None), WHOLE)
        for lease in order:
            book.close(lease, WHOLE)
        attempt = book.units[WHOLE].last
        assert attempt is not None
        assert (attempt.outcome, attempt.cause) == outcome


def test_book_counts_own_failures_and_rejections_in_a_row() -> None:
    book = Book()
    told = ("Fail/Exit", "Fail/Unstarted", "Fail/Rejected", "Fail/Rejected")
    for number, said in enumerate(told, start=1):
        lease = replace(closed(number, said), attempt=number)
        book.open(replace(lease, closed=None), WHOLE)
        book.close(lease, WHOLE)
    unit = book.units[WHOLE]
    assert unit.own_failures() == 2
    assert unit.rejected_in_a_row() == 2
    assert book.attempt == 4
    assert book.ended_at == NOW
    assert book.started == NOW - HOUR


def test_grow_sets_resized_at_and_swap_does_not() -> None:
    book = Book()
    start = a_lease(RUN, "n0", [0], batch=1, index=0, start=NOW)
    book.open(start, WHOLE)
    assert (book.resized_at, book.swapped_at) == (None, None)
    swapped = replace(start, name="r-2-0", batch=2, reason=Opened.SWAP, start=NOW + 1)
    book.open(swapped, WHOLE)
    assert (book.resized_at, book.swapped_at) == (None, NOW + 1)
    grown = replace(start, name="r-3-0", batch=3, reason=Opened.GROW, start=NOW + 2)
    book.open(grown, WHOLE)
    assert (book.resized_at, book.swapped_at) == (NOW + 2, NOW + 2)


def test_run_without_attempts_has_no_start_and_no_end() -> None:
    book = Book()
    assert (book.attempt, book.started, book.ended_at) == (0, None, None)
    assert book.attempt_of(a_lease(RUN, "n0", [0], batch=1, index=0), WHOLE) is None


def test_only_shrink_requested_by_user_sets_resized_at() -> None:
    lease = a_lease(RUN, "n0", [0], batch=1, index=0)
    for reason, resized in (("Shrink", NOW), ("Shrink(n0)", None), ("Swap(n0)", None)):
        book = Book()
        ending = Ending(why=parse_why(reason), deadline=NOW, batch=2, at=NOW)
        book.mark(replace(lease, ending=ending), voluntary=True)
        assert (book.resized_at, book.swapped_at) == (resized, NOW)  # each restarts settling


def test_closure_reason_states_drained_node_or_seed() -> None:
    assert str(ClosureReason(reason=Closed.SWAP, detail="n0")) == "Swap(n0)"
    assert parse_why("Swap(n0)").drained_node == "n0"
    assert parse_why("Swap").drained_node == ""
    assert (parse_why("RandomPreempt(ab)").drained_node, parse_why("RandomPreempt(ab)").seed) == (
        "", "ab",
    )  # fmt: skip
    with pytest.raises(ValueError, match="Retired"):
        parse_why("Retired")
