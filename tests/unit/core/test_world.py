"""The World is the same if facts arrive twice, late or out of order."""

from msgspec.structs import replace
from tests.properties.worlds import NOW, a_budget, a_lease, a_node, a_run, a_world
from tests.unit.test_lottery import a_resolution

from leasehold.core.facts import Pod, PodPhase, Role, Taint, Toleration
from leasehold.core.placement.pack import pods_room
from leasehold.core.preemption.victims import is_protected, protected_until
from leasehold.core.units import HOUR, MINUTE, SECOND, format_span
from leasehold.core.world.accounts import Claim
from leasehold.core.world.fleet import Shape
from leasehold.core.world.width import pod_size
from leasehold.core.world.world import World


def a_plain_world() -> World:
    return a_world([a_node("n0")], [a_budget("t")])


def test_foreign_pod_seen_before_its_node_is_counted_once() -> None:
    world = a_plain_world()
    world.put_pod(Pod(namespace="x", name="p", node="late", gpus=3, phase=PodPhase.RUNNING))
    world.put_node(a_node("late"))
    assert world.fleet.nodes["late"].count_free() == 5
    world.drop_pod("x/p")
    assert world.fleet.nodes["late"].count_free() == 8


def test_lease_read_before_its_node_takes_slots_when_the_node_arrives() -> None:
    world = a_plain_world()
    run = a_run("r")
    world.put_run(run)
    world.fold_open(a_lease(run, "late", range(4), batch=1, index=0))
    world.put_node(a_node("late"))
    assert world.fleet.nodes["late"].count_free() == 4


def test_outdated_version_of_a_pod_changes_nothing() -> None:
    world = a_plain_world()
    pod = Pod(namespace="x", name="p", node="n0", gpus=3, phase=PodPhase.RUNNING, version=2)
    world.put_pod(pod)
    world.put_pod(replace(pod, phase=PodPhase.SUCCEEDED, version=1))
    assert world.pods["x/p"] == pod
    assert world.fleet.nodes["n0"].count_free() == 5


def test_adding_load_to_an_unknown_node_changes_nothing() -> None:
    world = a_plain_world()
    world.fleet.load("none", gpus=3, cpu_milli=1, memory_bytes=1, pods=1)
    assert list(world.fleet.nodes) == ["n0"]
    assert world.fleet.nodes["n0"].count_free() == 8


def test_dropping_an_unknown_run_leaves_no_trace() -> None:
    world = a_plain_world()
    world.drop_run("uid-none")
    assert not world.work.runs
    assert not world.runs


def test_a_dropped_run_stays_until_its_leases_are_closed() -> None:
    world = a_plain_world()
    run = a_run("r")
    world.put_run(run)
    world.fold_open(a_lease(run, "n0", range(4), batch=1, index=0))
    world.drop_run(run.uid)
    assert world.runs[run.uid].deleting
    assert world.uid_of == {"n/r": run.uid}


def test_dropping_a_replaced_run_leaves_its_name_to_the_new_run() -> None:
    world = a_plain_world()
    world.put_run(a_run("r"))
    world.put_run(replace(a_run("r"), uid="uid-new"))
    world.drop_run("uid-r")
    assert world.uid_of == {"n/r": "uid-new"}
    world.drop_run("uid-new")
    assert world.uid_of == {}


def test_resolution_folded_twice_counts_once() -> None:
    world = a_plain_world()
    resolution = a_resolution()
    world.fold_resolution(resolution)
    world.fold_resolution(resolution)
    assert world.resolutions_of_subject(resolution.subject) == (resolution,)


def test_claims_and_plans_made_outside_a_what_if_survive_the_next_what_if() -> None:
    world = a_plain_world()
    claim = Claim(payer="n/t/e", uid="u", gpus=2, gpu_ms=2 * HOUR, start=NOW,
                  end=NOW + HOUR, borrowed=False)  # fmt: skip
    planned = replace(claim, uid="v")
    world.accounts.claim(claim)
    world.accounts.respect({"n/t/e": [planned]}, except_for=frozenset("w"))
    world.fleet.plan("n0", 1)
    world.fleet.plan_pod("n0", Shape(2))
    world.fleet.plan_pod("n0", Shape(4))
    world.fleet.unplan("n0", Shape(4))
    with world.what_if.opened():
        world.fleet.plan("n0", 5)
    assert world.accounts.claims_on("n/t/e") == [planned, claim]
    assert world.fleet.nodes["n0"].count_free() == 5


def test_tolerate_outside_a_what_if_opens_a_tainted_node_for_good() -> None:
    taint = Taint(key="soon", effect="NoSchedule")
    world = a_world([replace(a_node("n0"), taints=(taint,))])
    assert world.fleet.nodes["n0"].count_free() == 0
    world.fleet.tolerate((Toleration(key="soon", operator="Exists"),))
    assert world.fleet.nodes["n0"].count_free() == 8


def test_a_run_that_never_started_is_not_protected() -> None:
    world = a_plain_world()
    run = a_run("r")
    world.put_run(run)
    assert protected_until(world, run) is None
    assert not is_protected(world, run, NOW)


def test_pool_holds_only_as_many_pods_as_the_cpus_of_its_nodes_allow() -> None:
    world = a_world([replace(a_node("n0"), cpu_milli=5000), replace(a_node("n1"), cpu_milli=2000)])
    pool = world.fleet.pools[("H", a_node("n0").domain)]
    assert pods_room(world.fleet, pool, Shape(2)) == 8
    assert pods_room(world.fleet, pool, Shape(2, cpu_milli=2000)) == 3


def test_later_pods_of_a_run_have_the_size_of_its_pods_not_of_its_spares() -> None:
    world = a_plain_world()
    run = a_run("r", group_gpus=4, spares=2)
    run = replace(run, spec=replace(run.spec, gpus_per_pod=None))
    world.put_run(run)
    assert pod_size(world, run) == 2
    world.fold_open(a_lease(run, "n0", [0], batch=1, index=0, role=Role.SPARE))
    assert pod_size(world, run) == 2
    world.fold_open(a_lease(run, "n0", [1, 2, 3, 4], batch=1, index=1))
    assert pod_size(world, run) == 4


def test_negative_span_is_formatted_with_a_minus_sign() -> None:
    assert format_span(-(MINUTE + 30 * SECOND)) == "-1m30s"
