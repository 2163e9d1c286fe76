"""Corner cases of funding: loans both ways, caps that were lowered, owners in a parent cycle."""

from collections.abc import Iterable

from msgspec.structs import replace
from tests.properties.worlds import NOW, a_budget, a_lease, a_node, a_run, a_world, an_envelope

from leasehold.core.facts import Aggregate, Budget, Funding, Lending, Relation
from leasehold.core.funding.cover import cover
from leasehold.core.policy import Policy
from leasehold.core.preemption.overdraft import excesses
from leasehold.core.requests import FundingRequest
from leasehold.core.units import HOUR, Instant
from leasehold.core.verdicts import Refusal, Refused
from leasehold.core.world.tree import Tree

TO_ALL = Lending(allow=True, to=("*",))


def test_loan_from_own_debtor_is_refused_as_reciprocal() -> None:
    lender = an_envelope("n/y/e", "y", 8, lending=TO_ALL)
    other = replace(an_envelope("n/x/e", "x", 8, lending=TO_ALL), flavor="G")
    world = a_world(
        [a_node("n0")],
        [a_budget("y", lender), a_budget("x", other)],
        policy=Policy(forbid_reciprocal_lending=True),
    )
    debtor = a_run("r", "y")
    world.put_run(debtor)
    world.fold_open(
        replace(
            a_lease(debtor, "n0", range(4), batch=1, index=0, payer="n/x/e",
                    relation=Relation.BORROWED),
            payer_owner="x",
        )
    )  # fmt: skip
    ask = FundingRequest(owner="x", flavor="H", region="r", cluster="c", gpus=4, start=NOW,
              funding=Funding(allow_borrow=True, sponsors=("y",)))  # fmt: skip
    refused = cover(world, ask, now=NOW)
    assert isinstance(refused, Refused)
    assert refused.reason is Refusal.RECIPROCAL_LOAN
    assert refused.remedy == (
        "y borrows from x already, and forbidReciprocalLending does not "
        "allow loans in both directions"
    )


def test_excess_under_a_lowered_gpu_hour_cap_is_only_what_exceeds_the_cap() -> None:
    def budget(hours: int) -> Budget:
        return a_budget("t", an_envelope("n/t/e", "t", 16, max_gpu_ms=hours * HOUR))

    world = a_world([a_node("n0")], [budget(100)])
    run = a_run("r", groups=2, span=10 * HOUR)
    world.put_run(run)
    for index in range(2):  # each may use 40 GPU-hours in total and has used 4
        slots = range(4 * index, 4 * index + 4)
        world.fold_open(a_lease(run, "n0", slots, batch=1, index=index, group=index))
    world.head = replace(world.head, seq=1)
    world.put_budget(budget(60))
    (found,) = excesses(world, "n/t/e", NOW)
    assert (found.subject, found.gpus) == ("n/t/e", 4)
    assert found.why == "a lowered cap of GPU-hours"
    assert len(found.leases) == 2


def test_owners_in_a_parent_cycle_are_ancestors_only_once() -> None:
    circle = [Budget(namespace="n", name=name, owner=name, parents=(above,))
              for name, above in (("a", "b"), ("b", "c"), ("c", "a"))]  # fmt: skip
    assert Tree(circle).ancestors("a") == (("b",), ("c",))


def test_cover_with_many_caps_sums_up_each_cap_once() -> None:
    """Summing up each cap again for every envelope took a minute with 256 envelopes and caps."""
    envelopes = [an_envelope(f"n/t/e{index}", "t", 1) for index in range(64)]
    keys = tuple(each.key for each in envelopes)
    caps = tuple(
        Aggregate(key=f"n/t/c{index}", flavor="H", members=keys, max_concurrency=60 - index)
        for index in range(32)
    )
    world = a_world([a_node("n0")], [a_budget("t", *envelopes, aggregates=caps)])
    ask = FundingRequest(owner="t", flavor="H", region="r", cluster="c", gpus=64, start=NOW)
    summed = 0
    peak = world.accounts.peak

    def counted(
        payers: Iterable[str], *, start: Instant, end: Instant, now: Instant
    ) -> tuple[int, int]:
        nonlocal summed
        payers = tuple(payers)
        summed += len(payers)
        return peak(payers, start=start, end=end, now=now)

    world.accounts.peak = counted  # type: ignore[method-assign]
    refused = cover(world, ask, now=NOW)

    assert isinstance(refused, Refused)
    assert refused.short_by == 64 - (60 - 31)
    assert summed == 64 + 32 * 64
