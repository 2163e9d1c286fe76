"""Slots that a stranger is known to hold are dealt to nobody else."""

from leasehold.core.facts import Node
from leasehold.core.objects.pod import SLOTS, pod_from_wire
from leasehold.core.placement.bind import deal_slots
from leasehold.core.policy import Policy
from leasehold.core.verdicts import PodPlace
from leasehold.core.world.fleet import Fleet
from leasehold.core.world.what_if import WhatIf
from leasehold.core.world.world import World


def node(name: str, *, gpus: int) -> Node:
    return Node(name=name, flavor="H", region="r", cluster="c", fabric="a", gpus=gpus)


def place(gpus: int) -> PodPlace:
    return PodPlace(group=0, index=0, node="n0", gpus=gpus, spare=False)


def stranger(*slots: int, version: int = 1, gpus: int | None = None) -> dict[str, object]:
    held = len(slots) if gpus is None else gpus
    container = {"name": "c", "resources": {"limits": {"nvidia.com/gpu": str(held)}}}
    return {
        "metadata": {
            "name": "foreign", "namespace": "elsewhere", "uid": "f",
            "resourceVersion": str(version),
            "annotations": {SLOTS: ",".join(map(str, slots))},
        },
        "spec": {"nodeName": "n0", "containers": [container]},
        "status": {"phase": "Running"},
    }  # fmt: skip


def world() -> World:
    found = World(Policy())
    found.put_node(node("n0", gpus=4))
    return found


def test_the_lowest_slots_that_nobody_holds() -> None:
    here = world()
    here.put_pod(pod_from_wire(stranger(0, 2)))
    assert here.fleet.nodes["n0"].free == 2
    assert deal_slots(here.fleet, [place(2)])[place(2)] == (1, 3)


def test_when_the_stranger_goes_its_slots_are_free_again() -> None:
    here = world()
    here.put_pod(pod_from_wire(stranger(0, 2)))
    here.put_pod(pod_from_wire(stranger(3, version=2)))
    assert deal_slots(here.fleet, [place(3)])[place(3)] == (0, 1, 2)
    here.drop_pod("elsewhere/foreign")
    assert deal_slots(here.fleet, [place(4)])[place(4)] == (0, 1, 2, 3)


def test_without_an_annotation_only_the_count_is_known() -> None:
    here = world()
    here.put_pod(pod_from_wire(stranger(gpus=2)))
    assert here.fleet.nodes["n0"].free == 2
    assert deal_slots(here.fleet, [place(2)])[place(2)] == (0, 1)


def test_an_empty_fleet_has_no_strangers() -> None:
    fleet = Fleet(WhatIf())
    fleet.put_node(node("n0", gpus=4))
    assert deal_slots(fleet, [place(1)])[place(1)] == (0,)


def test_an_annotation_that_is_no_list_of_slots_says_nothing() -> None:
    for written in ("one", "0,,1", "-1", "99999", "٣"):
        wire = stranger(gpus=1)
        metadata = wire["metadata"]
        assert isinstance(metadata, dict)
        metadata["annotations"] = {SLOTS: written}
        assert pod_from_wire(wire).slots == ()
