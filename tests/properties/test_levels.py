"""The sweep over plans finds the same as a look at every time."""

from hypothesis import given
from hypothesis import strategies as st

from leasehold.core.facts import Lease, Opened, Relation, Role
from leasehold.core.world.accounts import Accounts, Claim, KnownEnd
from leasehold.core.world.levels import Drop, fewest, fewest_from_each
from leasehold.core.world.what_if import WhatIf

INSTANTS = st.integers(0, 12)
DROPS = st.lists(st.tuples(INSTANTS, st.integers(-3, 3)), max_size=8)
LAST = 30


def left_at(left: int, drops: list[Drop], at: int) -> int:
    return left - sum(gpus for when, gpus in drops if when <= at)


@given(left=st.integers(0, 8), drops=DROPS, start=INSTANTS, span=st.integers(1, LAST))
def test_fewest_equals_the_minimum_over_every_instant_of_the_span(
    left: int, drops: list[Drop], start: int, span: int
) -> None:
    expected = min(left_at(left, drops, at) for at in range(start, start + span))
    assert fewest(left, drops, start=start, stop=start + span) == expected


@given(
    left=st.integers(0, 8),
    drops=DROPS,
    starts=st.lists(INSTANTS, max_size=6).map(sorted),
    span=st.integers(1, LAST),
)
def test_minimum_of_many_spans_equals_minimum_of_each_span_alone(
    left: int, drops: list[Drop], starts: list[int], span: int
) -> None:
    alone = [fewest(left, drops, start=start, stop=start + span) for start in starts]
    assert fewest_from_each(left, drops, starts=starts, span=span) == alone


def lease(index: int, *, is_lent: bool) -> Lease:
    return Lease(
        name=f"l{index}", owner="t", namespace="t", run="r", uid="u", attempt=1, group=0,
        index=index, node="n", slots=(index,), role=Role.ACTIVE, start=0, payer="t/t/e",
        payer_owner="t", relation=Relation.BORROWED if is_lent else Relation.OWNED,
        reason=Opened.START, batch=1,
    )  # fmt: skip


@given(
    terms=st.lists(st.tuples(st.integers(1, 12), st.booleans()), max_size=5),
    claims=st.lists(st.tuples(INSTANTS, st.integers(1, 9), st.booleans()), max_size=5),
    now=st.integers(1, 6),
    ahead=st.integers(0, 6),
    span=st.integers(1, LAST),
)
def test_accounts_peak_equals_the_maximum_over_every_time(
    terms: list[tuple[int, bool]],
    claims: list[tuple[int, int, bool]],
    now: int,
    ahead: int,
    span: int,
) -> None:
    """Leases count until their known end, overdue leases always, plans while they last."""
    accounts = Accounts(WhatIf())
    for index, (frees_at, is_lent) in enumerate(terms):
        accounts.add(lease(index, is_lent=is_lent), KnownEnd(frees_at=frees_at))
    for start, lasts, is_lent in claims:
        accounts.claim(
            Claim(uid="x", payer="t/t/e", start=start, end=start + lasts, gpus=2,
                  borrowed=is_lent, gpu_ms=0)
        )  # fmt: skip

    def used(at: int, *, only_lent: bool) -> int:
        open_ones = sum(
            1 for frees_at, is_lent in terms
            if (frees_at <= now or frees_at > at) and (is_lent or not only_lent)
        )  # fmt: skip
        planned = sum(
            2 for start, lasts, is_lent in claims
            if start <= at < start + lasts and (is_lent or not only_lent)
        )  # fmt: skip
        return open_ones + planned

    begin = now + ahead
    expected = tuple(
        max(used(at, only_lent=only_lent) for at in range(begin, begin + span))
        for only_lent in (False, True)
    )
    assert accounts.peak(("t/t/e",), start=begin, end=begin + span, now=now) == expected
