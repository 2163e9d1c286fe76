"""What became of an attempt is the gravest of what became of its leases, in whatever order."""

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
    """`Fail/Exit@7` was decided in batch 7; without a batch in the one that closed it, 9."""
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


# how each lease closed                                      the attempt's outcome, and whose fault
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
def test_the_order_in_which_leases_close_does_not_matter(
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


def test_attempts_are_counted_by_how_they_ended() -> None:
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


def test_growing_is_a_resize_and_a_swap_is_not() -> None:
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


def test_a_run_without_attempts_never_began() -> None:
    book = Book()
    assert (book.attempt, book.started, book.ended_at) == (0, None, None)
    assert book.attempt_of(a_lease(RUN, "n0", [0], batch=1, index=0), WHOLE) is None


def test_only_a_shrink_that_its_user_asked_for_is_a_resize() -> None:
    lease = a_lease(RUN, "n0", [0], batch=1, index=0)
    for reason, resized in (("Shrink", NOW), ("Shrink(n0)", None), ("Swap(n0)", None)):
        book = Book()
        ending = Ending(why=parse_why(reason), deadline=NOW, batch=2, at=NOW)
        book.mark(replace(lease, ending=ending), voluntary=True)
        assert (book.resized_at, book.swapped_at) == (resized, NOW)  # each lets the others settle


def test_a_closure_names_the_node_that_was_drained() -> None:
    assert str(ClosureReason(reason=Closed.SWAP, detail="n0")) == "Swap(n0)"
    assert parse_why("Swap(n0)").drained_node == "n0"
    assert parse_why("Swap").drained_node == ""
    assert (parse_why("RandomPreempt(ab)").drained_node, parse_why("RandomPreempt(ab)").seed) == (
        "", "ab",
    )  # fmt: skip
    with pytest.raises(ValueError, match="Retired"):
        parse_why("Retired")
