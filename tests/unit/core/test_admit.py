"""admit: funding and placement together, over several locations, with CPU, taints and holds."""

from msgspec.structs import replace
from tests.properties.worlds import (
    NOW,
    a_budget,
    a_lease,
    a_node,
    a_run,
    a_wish,
    a_world,
    an_envelope,
)

from leasehold.core.admission.admit import admit
from leasehold.core.calendar.entries import Calendar, Entry
from leasehold.core.facts import Run, Taint, Toleration
from leasehold.core.verdicts import Admitted, Refusal, Refused
from leasehold.core.world.world import World

TAINT = Taint(key="k", value="v")


def answer(world: World, run: Run, calendar: Calendar | None = None) -> Admitted | Refused:
    world.put_run(run)
    return admit(world, a_wish(world, run), calendar or Calendar(), start=NOW, now=NOW)


def nodes_of(found: Admitted | Refused) -> list[str]:
    assert isinstance(found, Admitted), found
    return [each.node for each in found.packed.places]


def test_groups_use_several_locations_when_each_has_cpu_for_only_one_group() -> None:
    """Each node has GPUs for two pods and CPU for one."""
    nodes = [replace(a_node(f"n{c}", cluster=c), cpu_milli=1500) for c in "cd"]
    run = a_run("r", groups=2)
    run = replace(run, spec=replace(run.spec, cpu_milli=1000))
    assert sorted(nodes_of(answer(a_world(nodes, [a_budget("t")]), run))) == ["nc", "nd"]


def test_node_short_of_cpu_memory_or_pods_is_not_used() -> None:
    small = a_node("n0")
    run = a_run("r", groups=2)
    for node, spec in (
        (replace(small, cpu_milli=1999), replace(run.spec, cpu_milli=1000)),
        (replace(small, memory_bytes=1999), replace(run.spec, memory_bytes=1000)),
        (replace(small, pods_max=1), run.spec),
    ):
        wide = replace(a_node("n1", "b"), cpu_milli=2000, memory_bytes=2000)
        asking = replace(run, spec=spec)
        alone = answer(a_world([node], [a_budget("t")]), asking)
        assert isinstance(alone, Refused)
        assert nodes_of(answer(a_world([node, wide], [a_budget("t")]), asking)) == ["n1", "n1"]


def test_tainted_node_accepts_only_runs_that_tolerate_the_taint() -> None:
    tainted = replace(a_node("n0"), taints=(TAINT,))
    run = a_run("r")
    refused = answer(a_world([tainted], [a_budget("t")]), run)
    assert isinstance(refused, Refused)
    assert refused.reason is Refusal.CAPACITY
    toleration = Toleration(key="k", operator="Exists")
    tolerant = replace(run, spec=replace(run.spec, tolerations=(toleration,)))
    world = a_world([tainted], [a_budget("t")])
    assert nodes_of(answer(world, tolerant)) == ["n0"]
    calendar = Calendar()
    calendar.enter("ahead", [Entry(uid="ahead", node="n0", gpus=8, start=NOW)])
    held = answer(a_world([tainted], [a_budget("t")]), tolerant, calendar)
    assert isinstance(held, Refused)
    world.fleet.tolerate(())
    assert world.fleet.nodes["n0"].free == 0, "a toleration must not apply to the next run"


def test_free_but_held_gpus_are_refused_as_held() -> None:
    calendar = Calendar()
    calendar.enter("ahead", [Entry(uid="ahead", node="n0", gpus=8, start=NOW)])
    refused = answer(a_world([a_node("n0")], [a_budget("t")]), a_run("r"), calendar)
    assert isinstance(refused, Refused)
    assert refused.reason is Refusal.HELD
    assert refused.asked == 4


def test_location_without_payer_refuses_run_for_other_reason_than_money() -> None:
    nodes = [a_node(f"n{c}", cluster=c, gpus=4) for c in "cd"]
    only_c = replace(an_envelope("n/t/e", "t", 8), cluster="c")
    refused = answer(a_world(nodes, [a_budget("t", only_c)]), a_run("r", groups=2))
    assert isinstance(refused, Refused)
    assert not refused.reason.is_about_money


def test_tightest_location_is_chosen_when_no_single_domain_fits() -> None:
    """No single domain holds both groups; of two locations that do, the tighter one wins."""
    rows = (("c", "a", 8), ("c", "b", 8), ("d", "a", 4), ("d", "b", 4))
    nodes = [a_node(f"{c}{f}", f, cluster=c, gpus=gpus) for c, f, gpus in rows]
    world = a_world(nodes, [a_budget("t")])
    old = a_run("old")
    world.put_run(old)
    for index, name in enumerate(("ca", "cb")):
        world.fold_open(a_lease(old, name, range(3), batch=1, index=index, pod=index))
    run = a_run("r", groups=2)
    assert sorted(nodes_of(answer(world, run))) == ["da", "db"]


def test_flavor_that_no_node_has_is_refused_as_no_such_flavor() -> None:
    refused = answer(a_world([], [a_budget("t")]), a_run("r"))
    assert isinstance(refused, Refused)
    assert refused.reason is Refusal.NO_SUCH_FLAVOR
