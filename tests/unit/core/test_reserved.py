"""Limits other than room on where a run or its spares may be placed: reserved nodes, volumes."""

import pytest
from msgspec.structs import replace
from tests.properties.worlds import NOW, a_budget, a_node, a_run, a_wish, a_world, occupy

from leasehold.core.admission.admit import admit
from leasehold.core.admission.possible import never_fits
from leasehold.core.calendar.entries import Calendar
from leasehold.core.facts import Node, Run
from leasehold.core.objects.node import FLEET, Labels, node_from_wire, node_to_wire
from leasehold.core.policy import Policy
from leasehold.core.verdicts import Admitted, Refusal, Refused
from leasehold.core.world.world import World

SHARED = Policy(spares_on_reserved=True)


def a_fleet(reserved: str, count: int = 3) -> list[Node]:
    """Return nodes n0, n1, … of eight GPUs; those whose digit is in `reserved` are reserved."""
    names = [f"n{number}" for number in range(count)]
    return [replace(a_node(name), is_reserved=name[1:] in reserved) for name in names]


def with_spares(groups: int = 1) -> Run:
    """Return a run whose groups have one pod of eight GPUs and a spare for it."""
    return a_run("r", groups=groups, group_gpus=8, pod_gpus=8, spares=8)


def world_of(nodes: list[Node], policy: Policy = SHARED) -> World:
    return a_world(nodes, [a_budget("t")], policy=policy)


def places(world: World, run: Run) -> tuple[list[str], list[str]] | Refused:
    """Return the nodes of the run's pods and those of its spares, or the refusal."""
    world.put_run(run)
    found = admit(world, a_wish(world, run), Calendar(), start=NOW, now=NOW)
    if isinstance(found, Refused):
        return found
    assert isinstance(found, Admitted)
    pods = [each.node for each in found.packed.places if not each.spare]
    return pods, [each.node for each in found.packed.places if each.spare]


def test_leasehold_taint_does_not_exclude_leasehold_pods() -> None:
    for node in a_fleet("012"):
        read = node_from_wire(node_to_wire(node, labels=Labels()), labels=Labels())
        assert (read.is_reserved, read.taints) == (True, ())
    world = world_of(a_fleet("0", count=1))
    assert places(world, a_run("r")) == (["n0"], [])


def test_other_taint_on_reserved_node_excludes_leasehold_pods() -> None:
    wire = node_to_wire(a_fleet("0")[0], labels=Labels())
    taints = wire["spec"]["taints"]  # type: ignore[index]
    assert [each["key"] for each in taints] == [FLEET]
    taints.append({"key": "broken", "effect": "NoSchedule"})
    node = node_from_wire(wire, labels=Labels())
    assert [each.key for each in node.taints] == ["broken"]
    assert isinstance(places(world_of([node]), a_run("r")), Refused)


@pytest.mark.parametrize("reserved", ["0", "1", "2"])
def test_spare_is_placed_on_the_reserved_node(reserved: str) -> None:
    """The pod leaves that node to the spare, even though the pod would fit there too."""
    found = places(world_of(a_fleet(reserved)), with_spares())
    assert not isinstance(found, Refused), found
    pods, spares = found
    assert spares == [f"n{reserved}"]
    assert pods[0] != spares[0]


def test_spare_may_be_placed_anywhere_without_spares_on_reserved() -> None:
    assert not isinstance(places(world_of(a_fleet(""), Policy()), with_spares()), Refused)


@pytest.mark.parametrize(("reserved", "groups"), [("", 1), ("0", 2)])
def test_spares_without_enough_reserved_nodes_are_refused_for_good(
    reserved: str, groups: int
) -> None:
    world, run = world_of(a_fleet(reserved, count=6)), with_spares(groups)
    assert isinstance(places(world, run), Refused)
    found = never_fits(world, a_wish(world, run))
    assert found is not None
    assert (found.reason, found.reason.is_for_good) == (Refusal.NO_PLACE_FOR_SPARES, True)
    assert f"{len(reserved)} of 6 nodes" in found.remedy
    assert FLEET in found.remedy


def test_spares_wait_while_their_reserved_node_is_occupied() -> None:
    """Foreign pods are on the only node for spares."""
    world, run = world_of(a_fleet("0")), with_spares()
    occupy(world, "n0", 4)
    found = places(world, run)
    assert isinstance(found, Refused)
    assert (found.reason, found.reason.clears_with_time) == (Refusal.CAPACITY, True)
    assert "8 GPUs of this run are for spares" in found.remedy
    assert "too few GPUs are free there" in found.remedy
    assert never_fits(world, a_wish(world, run)) is None


def with_volumes(*nodes: str) -> Run:
    run = a_run("r", group_gpus=8, pod_gpus=8)
    return replace(run, spec=replace(run.spec, nodes=frozenset(nodes)))


def test_pod_is_placed_where_its_volumes_can_be_reached() -> None:
    assert places(world_of(a_fleet("")), with_volumes("n2")) == (["n2"], [])


def test_run_waits_while_nodes_that_reach_its_volumes_are_full() -> None:
    world = world_of(a_fleet(""))
    occupy(world, "n2", 4)
    found = places(world, with_volumes("n2", "elsewhere"))
    assert isinstance(found, Refused)
    assert (found.reason, found.reason.clears_with_time) == (Refusal.CAPACITY, True)
    assert "its volumes are reachable from 1 node with" in found.remedy
    assert "where fewer than 8 GPUs are free" in found.remedy
