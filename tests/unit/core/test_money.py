"""Corners of the money: loans both ways, caps that were lowered, owners in a circle."""

from msgspec.structs import replace
from tests.properties.worlds import NOW, a_budget, a_lease, a_node, a_run, a_world, an_envelope

from leasehold.core.decisions.cover import Ask, cover
from leasehold.core.decisions.overdraft import excesses
from leasehold.core.facts import Budget, Funding, Lending, Relation
from leasehold.core.policy import Policy
from leasehold.core.units import HOUR
from leasehold.core.verdicts import Refusal, Refused
from leasehold.core.world.tree import Tree

TO_ALL = Lending(allow=True, to=("*",))


def test_who_borrows_from_its_debtor_is_told_that_loans_both_ways_are_off() -> None:
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
    ask = Ask(owner="x", flavor="H", region="r", cluster="c", gpus=4, start=NOW,
              funding=Funding(allow_borrow=True, sponsors=("y",)))  # fmt: skip
    refused = cover(world, ask, now=NOW)
    assert isinstance(refused, Refused)
    assert refused.reason is Refusal.RECIPROCAL_LOAN
    assert refused.remedy == "y borrows from x already, and loans both ways are off"


def test_only_as_many_limited_leases_as_a_lowered_cap_is_short_of_are_too_much() -> None:
    def budget(hours: int) -> Budget:
        return a_budget("t", an_envelope("n/t/e", "t", 16, max_gpu_ms=hours * HOUR))

    world = a_world([a_node("n0")], [budget(100)])
    run = a_run("r", groups=2, span=10 * HOUR)
    world.put_run(run)
    for index in range(2):  # each may use 40 GPU-hours in all, and has used 4
        slots = range(4 * index, 4 * index + 4)
        world.fold_open(a_lease(run, "n0", slots, batch=1, index=index, group=index))
    world.head = replace(world.head, seq=1)
    world.put_budget(budget(60))
    (found,) = excesses(world, "n/t/e", NOW)
    assert (found.subject, found.gpus) == ("n/t/e", 4)
    assert found.why == "a lowered cap of GPU-hours"
    assert len(found.leases) == 2


def test_owners_in_a_circle_are_each_others_ancestors_once() -> None:
    circle = [Budget(namespace="n", name=name, owner=name, parents=(above,))
              for name, above in (("a", "b"), ("b", "c"), ("c", "a"))]  # fmt: skip
    assert Tree(circle).ancestors("a") == (("b",), ("c",))
