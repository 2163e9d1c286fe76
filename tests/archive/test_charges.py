"""Charges sum up leases: they give the same use for every window, also after serialisation."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.properties.worlds import NOW, a_budget, a_lease, a_node, a_run, a_world, an_envelope

from leasehold.core.facts import Cause, Closed, Closure, ClosureReason, Lease, Relation
from leasehold.core.ledger.charges import Charges
from leasehold.core.ledger.checkpoint import (
    Carried,
    CarriedAttempt,
    CarriedBook,
    carried_from_json,
    carried_to_json,
)
from leasehold.core.units import HOUR

PAYER = "n/t/e"
RUN = a_run("r", groups=4)

leases = st.lists(
    st.builds(
        lambda start, span, gpus, lent: replace(
            a_lease(RUN, "n0", list(range(gpus)), batch=1, index=0, pod=0, payer=PAYER,
                    start=NOW + start, relation=Relation.BORROWED if lent else Relation.OWNED),
            closed=Closure(why=ClosureReason(reason=Closed.COMPLETED), at=NOW + start + span,
                           batch=2),
        ),
        st.integers(0, 40), st.integers(0, 40), st.integers(1, 8), st.booleans(),
    ),
    max_size=12,
)  # fmt: skip


def recounted(some: list[Lease], since: int) -> tuple[int, int]:
    used = lent = 0
    for lease in some:
        assert lease.end is not None
        amount = lease.gpus * max(0, lease.end - max(lease.start, since))
        used += amount
        lent += amount * (lease.relation is Relation.BORROWED)
    return used, lent


@given(first=leases, second=leases, since=st.integers(-5, 90))
def test_charges_match_leases_for_any_window(
    first: list[Lease], second: list[Lease], since: int
) -> None:
    charges = Charges().with_leases(first).with_leases(second)
    assert charges.used_since(NOW + since) == recounted([*first, *second], NOW + since)
    assert charges.used_since(0) == recounted([*first, *second], 0)
    again = Charges.from_row(charges.to_row())
    assert again == charges
    assert again.used_since(NOW + since) == charges.used_since(NOW + since)


@given(some=leases)
def test_account_with_compacted_leases_counts_like_leases_after_window_edits(
    some: list[Lease],
) -> None:
    world = a_world([a_node("n0")], [a_budget("t", an_envelope(PAYER, "t"))])
    carried = a_world([a_node("n0")], [])
    carried.carry(Carried(seq=9, charges={PAYER: Charges().with_leases(some)}))
    carried.put_budget(a_budget("t", an_envelope(PAYER, "t")))
    world.put_run(RUN)
    for number, lease in enumerate(some):
        world.fold_closed_lease(replace(lease, name=f"r-1-{number}"))
    for start in (0, NOW + 7, NOW + 21, NOW - HOUR):
        moved = replace(an_envelope(PAYER, "t"), start=start)
        for each in (world, carried):
            each.put_budget(a_budget("t", moved))
        mine, theirs = (each.accounts.of(PAYER) for each in (world, carried))
        assert mine.used_ms(NOW + 99) == theirs.used_ms(NOW + 99) == recounted(some, start)[0]
        assert mine.lent_used_ms(NOW + 99) == theirs.lent_used_ms(NOW + 99)


def test_state_kept_of_compacted_leases_is_unchanged_by_writing_and_reading() -> None:
    attempt = CarriedAttempt(
        unit=-1, number=2, started=NOW, batch=3, verdict=(4, 1, 4), closure="Fail",
        cause=Cause.EXIT, ended_at=NOW + 5, protected=True, completed=0,
    )  # fmt: skip
    book = CarriedBook(
        attempts=(attempt,), settled=((PAYER, Relation.SHARED, 77),), cuts=((-1, 2),),
        resized_at=NOW, swapped_at=None,
    )  # fmt: skip
    carried = Carried(seq=4, digest="d" * 64, instant=NOW, books={"u": book}, kept=frozenset({"x"}))
    carried.told.lowered.note(
        a_budget("t", replace(an_envelope(PAYER, "t"), max_gpu_ms=9)), batch=1
    )
    carried.told.lowered.note(
        a_budget("t", replace(an_envelope(PAYER, "t"), max_gpu_ms=5)), batch=3
    )
    again = carried_from_json(carried_to_json(carried))
    assert carried_to_json(again) == carried_to_json(carried)
    assert again.books == carried.books
    before = a_lease(RUN, "n0", [0], batch=3, index=0, pod=0, payer=PAYER)
    assert again.told.lowered.was_lowered_under(before, lent=False)
    assert not again.told.lowered.was_lowered_under(replace(before, batch=4), lent=False)
    assert again.has_dropped(4, "y")
    assert not again.has_dropped(4, "x")
    assert not again.has_dropped(5, "y")
