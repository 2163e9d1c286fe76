"""Special cases of a turn, each in a World of its own: what is decided, and what is left alone."""

from msgspec.structs import replace
from tests.properties.worlds import (
    KEY,
    NOW,
    a_budget,
    a_lease,
    a_node,
    a_run,
    a_world,
    an_envelope,
)

from leasehold.control.decide import decide
from leasehold.control.running.edits import uncovered_edit
from leasehold.control.turn import Turn
from leasehold.control.views.numbers import envelope_view, run_view
from leasehold.core.facts import (
    Cause,
    Closed,
    Closure,
    ClosureReason,
    Ending,
    Gang,
    Lease,
    Node,
    Opened,
    Pod,
    PodPhase,
    Toleration,
)
from leasehold.core.names import Wire
from leasehold.core.policy import Policy
from leasehold.core.reservations import Confidence, Reservation, State
from leasehold.core.units import HOUR, MINUTE, SECOND, parse_instant
from leasehold.core.world.world import World
from leasehold.sim.scenario.parse_actions import manifest

SELF_FENCING = Policy(node_failure_after=(("*", MINUTE),))


def decided(world: World, *, trusted: bool = True, apart: frozenset[str] = frozenset()) -> Turn:
    return decide(world, now=NOW, key=KEY, time_trusted=trusted, quarantined=apart)


def opened_by(turn: Turn) -> list[Lease]:
    return [lease for batch in turn.batches for lease in batch.opened]


def a_world_with_one_lease(policy: Policy | None = None) -> tuple[World, Lease]:
    world = a_world([a_node("n0"), a_node("n1")], [a_budget("t")], policy=policy)
    run = a_run("r", span=10 * HOUR)
    world.put_run(replace(run, seen_running=1))
    lease = a_lease(run, "n0", range(4), batch=0, index=0)
    world.fold_open(lease)
    return world, lease


def silent(name: str) -> Node:
    return replace(a_node(name), ready=False, not_ready_since=NOW - HOUR)


def an_edit(limit: str) -> object:
    resources = {"gpuType": "H", "totalGPUs": 4, "gpusPerPod": 4}
    spec: Wire = {"owner": "t", "resources": resources, "runtime": {"maxDuration": limit}}
    return manifest("Run", "n/r", spec)


def test_edit_to_a_longer_limit_is_refused_if_payer_lacks_gpu_hours() -> None:
    world, lease = a_world_with_one_lease()
    world.put_budget(a_budget("t", an_envelope("n/t/e", "t", 8, max_gpu_ms=4 * HOUR)))
    assert uncovered_edit(world, lease.uid, an_edit("10h"), NOW) == []
    ((path, said),) = uncovered_edit(world, lease.uid, an_edit("11h"), NOW)
    assert path == "spec.runtime.maxDuration"
    assert said == "n/t/e has 0 GPU-hours left, the longer limit needs 4 more"


def test_deleted_payer_does_not_refuse_a_longer_limit() -> None:
    world, lease = a_world_with_one_lease()
    world.drop_budget("n/t")
    assert uncovered_edit(world, lease.uid, an_edit("11h"), NOW) == []


def test_silent_node_is_not_failed_while_the_clock_is_not_trusted() -> None:
    world, lease = a_world_with_one_lease(SELF_FENCING)
    world.put_node(silent("n0"))
    decided(world, trusted=False)
    assert world.leases[lease.name].is_open
    world.work.look_at(lease.uid)
    decided(world)
    assert str(world.leases[lease.name].why) == Closed.NODE_FAILURE


def test_ending_lease_keeps_its_reason_when_its_node_is_lost() -> None:
    world, lease = a_world_with_one_lease(SELF_FENCING)
    world.fold_ending(
        lease.name, Ending(why=ClosureReason(reason=Closed.CANCELED), deadline=NOW + HOUR)
    )
    world.put_pod(Pod(namespace="n", name=lease.pod, node="n0", gpus=4, run_uid=lease.uid,
                      phase=PodPhase.RUNNING))  # fmt: skip
    decided(world, trusted=False)
    assert world.leases[lease.name].is_open
    world.put_node(silent("n0"))
    decided(world)
    assert str(world.leases[lease.name].why) == Closed.CANCELED


def test_lease_whose_object_the_store_refuses_is_closed_as_failed() -> None:
    world, lease = a_world_with_one_lease()
    world.put_refused_lease(lease.name)
    decided(world)
    closed = world.leases[lease.name]
    assert (str(closed.why), closed.cause, closed.end) == ("Fail", Cause.REFUSED, NOW)


def an_elastic_world(groups: int, policy: Policy | None = None) -> World:
    """Return a World with a run of one group of four GPUs that desires more."""
    world = a_world([a_node(f"n{i}") for i in range(groups)], [a_budget("t")], policy=policy)
    run = a_run("r", groups=groups, minimum=4)
    world.put_run(replace(run, seen_running=1))
    world.fold_open(a_lease(run, "n0", range(4), batch=0, index=0))
    return world


def test_elastic_run_grows_unless_it_is_quarantined() -> None:
    assert len(opened_by(decided(an_elastic_world(3)))) == 2
    assert opened_by(decided(an_elastic_world(3), apart=frozenset({"uid-r"}))) == []


def test_grow_too_large_for_a_batch_is_made_smaller() -> None:
    world = an_elastic_world(8, Policy(batch_bytes_max=3000))
    assert 1 <= len(opened_by(decided(world))) < 7


def test_grown_group_not_bound_in_time_is_ended_alone() -> None:
    world = an_elastic_world(2)
    run, first = world.runs["uid-r"], world.leases["r-0-0"]
    pod = Pod(namespace="n", name=first.pod, node="n0", gpus=4, run_uid=run.uid)
    world.put_pod(replace(pod, phase=PodPhase.RUNNING))
    late = a_lease(run, "n1", range(4), batch=0, index=1, group=1)
    world.fold_open(replace(late, reason=Opened.GROW))
    turn = decided(world)
    assert world.leases[first.name].ending is None
    ending = world.leases[late.name].ending
    assert ending is not None
    assert ending.why.reason is Closed.FAIL
    assert "BindFailing" in [notice.reason for notice in turn.notices]


def a_reservation(run: str, *, starts: int = NOW + HOUR) -> Reservation:
    return Reservation(namespace="n", name=f"{run}-0", run=run, uid=f"uid-{run}", batch=0,
                       announced=NOW, state=State.PENDING, commitment="c", starts=starts,
                       confidence=Confidence.CUTS, domains=("r/c/a",))  # fmt: skip


def test_start_by_preemption_holds_nothing_while_its_run_pauses() -> None:
    world = a_world([a_node("n0")], [a_budget("t")])
    run = a_run("r")
    world.put_run(replace(run, spec=replace(run.spec, retries=1)))
    world.fold_open(a_lease(run, "n0", range(4), batch=0, index=0))
    world.fold_close("r-0-0", Closure(why=ClosureReason(reason=Closed.FAIL), at=NOW, batch=0))
    world.fold_reservation(a_reservation("r"))
    world.put_run(a_run("other", group_gpus=8, pod_gpus=8, created=NOW))
    turn = decided(world)
    assert [lease.run for lease in opened_by(turn)] == ["other"]
    assert world.reservations["n/r-0"].state is State.CANCELED


# A start by preemption is planned as soon as a run waits.
SOON = Policy(odds_seeds=1, patience=15 * MINUTE, min_tenure=0)


def a_full_world(waiting: int, policy: Policy, *, nodes: int = 1) -> World:
    """Return nodes full of runs of one GPU, and `waiting` more of other owners in the queue."""
    holders, others = range(8 * nodes), range(waiting)
    owners = [*(f"t{index}" for index in holders), *(f"z{index}" for index in others)]
    world = a_world([a_node(f"n{i}") for i in range(nodes)], map(a_budget, owners), policy=policy)
    for index in holders:
        run = a_run(f"r{index}", f"t{index}", group_gpus=1, pod_gpus=1)
        world.put_run(replace(run, seen_running=1))
        place = (f"n{index // 8}", [index % 8])
        world.fold_open(a_lease(run, *place, batch=0, index=index))
    for index in others:
        world.put_run(a_run(f"w{index:02}", f"z{index}", group_gpus=1, pod_gpus=1, created=NOW))
    return world


def test_odds_of_at_most_four_large_lotteries_are_sampled_per_second() -> None:
    world = a_full_world(9, replace(SOON, odds_seeds=4), nodes=2)

    def sampled_at(now: int) -> list[str]:
        turn = decide(world, now=now, key=KEY)
        if turn.batches:
            world.head = replace(world.head, seq=turn.batches[-1].seq)
        assert turn.wake_at == now - (now - NOW) % SECOND + SECOND
        return sorted(each.run for each in world.reservations.values() if each.odds)

    first = ["w00", "w01", "w02", "w03"]
    assert sampled_at(NOW) == first
    assert sampled_at(NOW + SECOND // 2) == first
    assert sampled_at(NOW + SECOND) == [*first, "w04", "w05", "w06", "w07"]


def test_plans_that_a_turn_has_no_time_to_preview_stay_unchanged() -> None:
    policy = replace(SOON, reservation_depth=100)
    world = a_full_world(40, policy, nodes=5)
    decided(world)
    before = dict(world.reservations)
    assert len(before) == 40
    world.head = replace(world.head, seq=9)
    last = max(before.values(), key=lambda each: each.run)
    stale = replace(last, message="as it was")
    world.fold_reservation(stale)
    decide(world, now=NOW + SECOND, key=KEY)
    assert world.reservations.keys() == before.keys()
    assert world.reservations[last.subject] == stale
    first = min(before.values(), key=lambda each: each.run)
    assert world.reservations[first.subject].starts == first.starts


def test_forecast_for_a_tolerant_run_is_not_reused_for_the_next_run() -> None:
    world = a_full_world(2, SOON)
    tolerant = world.runs["uid-w00"]
    spec = replace(tolerant.spec, tolerations=(Toleration(key="soon", operator="Exists"),))
    world.put_run(replace(tolerant, spec=spec))
    decided(world)
    plans = [each.confidence for each in world.reservations.values()]
    assert plans == [Confidence.CUTS, Confidence.CUTS]


def test_sweep_with_groups_too_large_for_a_batch_is_refused() -> None:
    world = a_world([a_node("n0")], [a_budget("t")], policy=Policy(batch_bytes_max=1100))
    world.put_run(a_run("r", groups=2, gang=Gang.GROUP))
    assert opened_by(decided(world)) == []
    assert run_view(world, "uid-r", NOW).because == "GangTooLarge"


def test_gang_that_stays_too_large_is_blocked_once() -> None:
    world = a_world([a_node("n0")], [a_budget("t")], policy=Policy(batch_bytes_max=300))
    world.put_run(a_run("r"))
    (blocked,) = decided(world).reservations.values()
    assert (blocked.state, blocked.reason) == (State.BLOCKED, "GangTooLarge")
    assert decided(world).reservations == {}
    world.put_run(a_run("r", groups=2))
    turn = decided(world)
    assert turn.reservations == {}, "not for a mere count in its words"
    assert [notice.reason for notice in turn.notices] == ["GangTooLarge"]


def test_window_may_start_in_the_year_one() -> None:
    began = parse_instant("0001-01-01T00:00:00Z")
    assert began is not None
    envelope = replace(an_envelope("n/t/e", "t"), start=began)
    world = a_world([a_node("n0")], [a_budget("t", envelope)])
    world.put_run(a_run("waits", groups=200))
    assert opened_by(decided(world)) == []


def test_queued_run_whose_units_all_run_is_not_started_again() -> None:
    world, lease = a_world_with_one_lease()
    world.put_pod(
        Pod(
            namespace="n", name=lease.pod, node="n0", gpus=4, run_uid=lease.uid,
            phase=PodPhase.RUNNING,
        )
    )  # fmt: skip
    decided(world)
    world.work.pending[lease.uid] = None
    assert opened_by(decided(world)) == []
    assert world.memory.refusals == {}


def test_leases_that_exceed_one_batch_are_split_over_several() -> None:
    world = a_world([a_node("n0")], [a_budget("t")], policy=Policy(batch_bytes_max=3000))
    for index in range(8):
        world.put_run(a_run(f"r{index}", group_gpus=1, pod_gpus=1))
    turn = decided(world)
    assert len(opened_by(turn)) == 8
    assert len(turn.batches) > 1
    assert [bool(batch.facts_nodes) for batch in turn.batches].count(True) == 1


def test_node_facts_too_large_for_one_batch_are_written_into_the_next() -> None:
    world = a_world([a_node(f"n{i}") for i in range(9)], [a_budget("t")],
                    policy=Policy(batch_bytes_max=3000))  # fmt: skip
    for index in range(9):
        world.put_run(a_run(f"r{index}", group_gpus=8, pod_gpus=8))
    turn = decided(world)
    assert len(opened_by(turn)) == 9
    assert [batch.seq for batch in turn.batches] == list(range(1, len(turn.batches) + 1))
    stated = [fact.name for batch in turn.batches for fact in batch.facts_nodes]
    assert sorted(stated) == [f"n{i}" for i in range(9)]
    assert len(turn.batches) > 1


def test_changed_node_is_written_into_the_ledger_again() -> None:
    world = a_world([a_node("n0")], [a_budget("t")])
    world.put_run(a_run("r"))
    decided(world)
    world.put_node(a_node("n0", gpus=16))
    (batch,) = (batch for batch in decided(world).batches if batch.facts_nodes)
    assert [(fact.name, fact.gpus) for fact in batch.facts_nodes] == [("n0", 16)]


def test_view_of_a_deleted_envelope_is_empty() -> None:
    view = envelope_view(a_world([]), "n/t/e", NOW)
    assert (view.used, view.free, view.committed_ms, view.left_ms) == (0, 0, 0, None)


def test_run_not_considered_yet_has_reason_submitted() -> None:
    world = a_world([])
    world.put_run(a_run("r"))
    view = run_view(world, "uid-r", NOW)
    assert (view.because, view.message) == ("Submitted", "not considered yet")


def test_sweep_too_large_for_one_batch_starts_in_several() -> None:
    policy = Policy(batch_bytes_max=3000)
    nodes = [a_node(name) for name in ("n0", "n1", "n2")]
    world = a_world(nodes, [a_budget("t")], policy=policy)
    world.put_run(a_run("r", groups=6, gang=Gang.GROUP))

    turn = decided(world)

    assert sorted(lease.group for lease in world.leases.values()) == [0, 1, 2, 3, 4, 5]
    assert len(turn.batches) > 1
