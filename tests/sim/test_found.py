"""Defects that simulations found or planted bugs pointed to, each as a small plan."""

from pathlib import Path

import msgspec
import pytest

from leasehold.core.units import MINUTE, SECOND
from leasehold.sim.faults.file import plan_of
from leasehold.sim.faults.plan import FaultPlan
from leasehold.sim.faults.play import play
from leasehold.sim.scenario.parse import load_story, parse_story
from leasehold.sim.scenario.trouble import ANY, LEADER, RECOVERING, Attack, Harm, Profile

pytestmark = pytest.mark.long

STORIES = Path(__file__).resolve().parents[1] / "scenarios"
MAKES = "before make Pod"
FOUND = Path(__file__).resolve().parent / "found"


def kept_plan(name: str) -> FaultPlan:
    """Return a plan as it was when it failed: a seed may draw another plan in future."""
    return msgspec.json.decode((FOUND / f"{name}.json").read_bytes(), type=FaultPlan)


@pytest.mark.parametrize(
    ("point", "lasts"),
    [("before create Resolution", 17), ("before create Resolution", 40),
     ("after create Resolution", 40)],
)  # fmt: skip
def test_deposed_leader_leaves_its_successors_resolution_alone(point: str, lasts: int) -> None:
    """Once, a leader woke up, found another leader's Resolution of that name, and replaced it.

    The shorter pause ends while the successor is between its Resolution and its commit.
    """
    file = STORIES / "R3-spares-then-groups-then-the-lottery.yaml"
    plan = FaultPlan(
        seed=1,
        profile=Profile.HUNTER,
        story=file.read_text(encoding="utf-8"),
        trouble=load_story(file).steps[-1].at + MINUTE,
        attacks=(
            Attack(at=SECOND, harm=Harm.PAUSE, who=LEADER, lasts=lasts * SECOND, point=point),
        ),
    )
    outcome = play(plan)
    assert outcome.effects["pause at a point"] == 1
    assert outcome.problems == []


@pytest.mark.parametrize("seed", [1, 6])
def test_leader_does_not_adopt_a_resolution_of_a_deposed_leader(seed: int) -> None:
    """Two leaders are paused before they publish, and the deposed one continues first.

    It publishes its own Resolution, which the new leader then finds under the same name.
    """
    file = STORIES / "R3-spares-then-groups-then-the-lottery.yaml"
    point = "before create Resolution"
    plan = FaultPlan(
        seed=seed,
        profile=Profile.HUNTER,
        story=file.read_text(encoding="utf-8"),
        trouble=load_story(file).steps[-1].at + MINUTE,
        attacks=(
            Attack(at=SECOND, harm=Harm.PAUSE, who=ANY, lasts=20 * SECOND, point=point),
            Attack(at=2 * SECOND, harm=Harm.PAUSE, who=ANY, lasts=6 * SECOND, point=point),
        ),
    )
    outcome = play(plan)
    assert outcome.effects["pause at a point"] == 2
    assert outcome.problems == []


@pytest.mark.parametrize("seed", [3, 4])
def test_leader_deposed_during_its_recovery_removes_no_resolution(seed: int) -> None:
    """Once, it had sealed and read the chain, and was paused while its successor committed.

    It then took the successor's Resolution for a leftover, since no batch that it knew named it.
    (Seed 1102263051812, when seeds drew no attacks at a point.)
    """
    file = STORIES / "R3-spares-then-groups-then-the-lottery.yaml"
    cut_at = 75 * MINUTE
    plan = FaultPlan(
        seed=seed,
        profile=Profile.HUNTER,
        story=file.read_text(encoding="utf-8"),
        trouble=load_story(file).steps[-1].at + MINUTE,
        attacks=(
            Attack(at=cut_at - 20 * SECOND, harm=Harm.CRASH, who=LEADER, lasts=SECOND),
            Attack(
                at=cut_at - 19 * SECOND,
                harm=Harm.PAUSE,
                who=RECOVERING,
                lasts=40 * SECOND,
                point="after update LedgerHead",
            ),
        ),
    )
    outcome = play(plan)
    assert outcome.effects["pause in recovery"] == 1
    assert outcome.problems == []


SMALL = """title: Two runs
fleet: [{"domain": "a", "nodes": 3, "gpus": 4, "flavor": "H", "region": "r1", "cluster": "c1"}]
budgets: {"t/t": {"owner": "o", "envelopes": [{"name": "e", "flavor": "H", "concurrency": 12}]}}
steps:
  - {"at": "1m", "submit": {"t/one": {"owner": "o", "resources": {"gpuType": "H", "totalGPUs": 8, "gpusPerPod": 4}}}, "work": {"lasts": "4m"}}
  - {"at": "2m", "submit": {"t/two": {"owner": "o", "resources": {"gpuType": "H", "totalGPUs": 4, "gpusPerPod": 4}}}, "work": {"lasts": "2m"}}
"""  # noqa: E501 - a step a line, as the generator writes them


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("fault", ["refuse", "lose-request"])
def test_pod_whose_creation_failed_is_created_soon_in_the_same_attempt(
    seed: int, fault: str
) -> None:
    """The leader must not wait for the bind timeout: that would begin another attempt."""
    plan = FaultPlan(
        seed=seed, profile=Profile.UNIFORM, story=SMALL, trouble=8 * MINUTE, store={fault: 0.5}
    )
    outcome = play(plan)
    assert outcome.problems == []
    assert outcome.marks["lease opened by Start"] == 3
    assert outcome.marks["second attempt"] == 0


WANTED_BY_TWO = """title: One is cancelled before it began, and the other has its place
fleet: [{"domain": "a", "nodes": 2, "gpus": 4, "flavor": "H", "region": "r1", "cluster": "c1"}]
budgets: {"t/t": {"owner": "o", "envelopes": [{"name": "e", "flavor": "H", "concurrency": 8}]}}
steps:
  - {"at": "1m", "submit": {"t/one": {"owner": "o", "resources": {"gpuType": "H", "totalGPUs": 8, "gpusPerPod": 4}}}}
  - {"at": "70s", "submit": {"t/two": {"owner": "o", "resources": {"gpuType": "H", "totalGPUs": 8, "gpusPerPod": 4}}}}
  - {"at": "80s", "cancel": "t/one"}
"""  # noqa: E501 - a step a line, as the generator writes them


@pytest.mark.parametrize("seed", [1, 2])
def test_leader_deposed_before_it_creates_a_pod_does_not_bind_the_pod(seed: int) -> None:
    """A leader with a very slow clock is paused; meanwhile its successor gives the place away.

    The successor knew that the run was cancelled. The late pod must not run.
    """
    plan = FaultPlan(
        seed=seed,
        profile=Profile.BREAKING,
        story=WANTED_BY_TWO,
        trouble=4 * MINUTE,
        attacks=(
            Attack(at=50 * SECOND, harm=Harm.DRIFT, who=LEADER, lasts=MINUTE, amount=-900_000),
            Attack(at=59 * SECOND, harm=Harm.PAUSE, who=LEADER, lasts=30 * SECOND, point=MAKES),
        ),
    )
    outcome = play(plan)
    assert outcome.effects["pause at a point"] == 1
    assert outcome.problems == []


SILENCE = """title: A node falls silent
config: {"nodeFailure.after": "36s"}
fleet: [{"domain": "a", "nodes": 2, "gpus": 4, "flavor": "H", "region": "r1", "cluster": "c1"}]
budgets: {"t/t": {"owner": "o", "envelopes": [{"name": "e", "flavor": "H", "concurrency": 8}]}}
steps:
  - {"at": "1m", "submit": {"t/one": {"owner": "o", "resources": {"gpuType": "H", "totalGPUs": 4, "gpusPerPod": 4}, "sparesPerGroup": 4}}}
  - {"at": "2m", "node": {"name": "a-00", "is": "silent"}}
"""  # noqa: E501 - a step a line, as the generator writes them


def test_new_leader_with_a_fast_clock_does_not_count_silence_too_early() -> None:
    """Once, by the fast clock of a new leader the node had been silent for long.

    Its pod was moved to the spare while the pod still ran.
    """
    plan = FaultPlan(
        seed=1,
        profile=Profile.UNIFORM,
        story=SILENCE,
        trouble=4 * MINUTE,
        offsets={"c2": 20 * SECOND, "c3": 20 * SECOND},
        attacks=(
            Attack(at=SECOND, harm=Harm.CRASH, who="c2", lasts=SECOND),
            Attack(at=SECOND, harm=Harm.CRASH, who="c3", lasts=SECOND),
            Attack(at=118 * SECOND, harm=Harm.STOP, who="c1", lasts=5 * MINUTE),
        ),
    )
    outcome = play(plan)
    assert outcome.problems == []
    assert outcome.marks["lease opened by Swap"] == 1
    assert outcome.marks["silence counted as death"] == 1


@pytest.mark.parametrize("seed", [1, 3, 4])
def test_tenure_is_counted_from_before_its_renewal_was_sent(seed: int) -> None:
    """The answer to a renewal is lost, and the leader reads two seconds later that it was written.

    Then the leader is disconnected. The clocks differ by as much as the tenure's margins allow.
    """
    plan = FaultPlan(
        seed=seed,
        profile=Profile.UNIFORM,
        story=SMALL,
        trouble=3 * MINUTE,
        drifts={"c1": -180_000, "c2": 180_000, "c3": 180_000},
        attacks=(
            Attack(at=SECOND, harm=Harm.CRASH, who="c2", lasts=SECOND),
            Attack(at=SECOND, harm=Harm.CRASH, who="c3", lasts=SECOND),
            Attack(
                at=90 * SECOND,
                harm=Harm.CUT_ANSWERS,
                who="c1",
                lasts=2100,
                point="before update Tenure",
            ),
            Attack(at=96 * SECOND, harm=Harm.CUT, who="c1", lasts=20 * SECOND),
        ),
    )
    outcome = play(plan)
    assert outcome.problems == []
    assert outcome.effects["cut-answers at a point"] == 1
    assert [each.handed_over for each in outcome.take_overs] == [False]


def test_lease_of_a_drawn_run_is_not_refinanced_first() -> None:
    """Once, a lease of a drawn run had just been refinanced, and was marked though closed."""
    assert play(kept_plan("a-lot-ends-what-moved")).problems == []


def test_run_uses_place_of_a_blocked_reservation_without_a_further_event() -> None:
    """Once, a due reservation found no payer and was blocked after other runs had been considered.

    A run that could use its place was reserved only in the next turn, which nothing requested.
    """
    assert play(kept_plan("blocked-lets-others-in")).problems == []


def test_start_whose_awaited_node_stays_silent_preempts_others_in_time() -> None:
    """An ending lease should free the GPUs, but its node stays silent.

    After the drain timeout others are preempted; once, nothing woke the loop for that.
    """
    assert play(kept_plan("who-does-not-go-is-given-up")).problems == []


def test_leader_with_a_fast_clock_is_judged_by_the_ledgers_time() -> None:
    """Its leases ended in the future of all other processes."""
    assert play(kept_plan("a-leader-ahead-of-time")).problems == []


def test_reservation_due_at_the_instant_of_the_final_check_is_no_problem() -> None:
    """A reservation became due in the same millisecond in which all had to be at rest."""
    assert play(kept_plan("on-the-minute")).problems == []


def test_loop_pauses_between_retries_of_a_refused_bind() -> None:
    """Once, news of a run's new pods came late, and the run's status was not written.

    While the bind of another run was refused, the loop went round without a pause.
    """
    assert play(kept_plan("who-tries-again-rests")).problems == []


def test_run_does_not_grow_while_a_pod_waits_for_its_spare() -> None:
    """Once, a filler still used the spare of a group that had lost a pod.

    The run desired more GPUs, was counted with a part of a group, and the controller stopped.
    """
    assert play(kept_plan("no-growth-beside-a-vacancy")).problems == []


def test_check_that_plans_are_kept_ignores_places_of_overdue_leases() -> None:
    """Once, a pod stayed long after its deadline, and no plan counted on its place.

    The check that plans are kept counted on it, and missed it where a start was known.
    """
    assert play(kept_plan("nobody-plans-with-the-overdue")).problems == []


def test_filler_ends_with_its_spare_and_is_not_refinanced_first() -> None:
    """Once, an owner took its envelope back: a filler was refinanced and then ended with its spare.

    The plan is what `--shrink` left of seed 1000029.
    """
    text = (FOUND / "a-filler-goes-with-its-spare.yaml").read_text(encoding="utf-8")
    assert play(plan_of(parse_story(text, "found"), text)).problems == []


def test_pod_missing_from_an_older_list_is_not_lost() -> None:
    """Once, the watch of pods broke, a list was read, a pod was made, and then the list arrived.

    The run lost the pod as if another client had deleted it. Besides, the busy kubelet never
    reported that the pod had ended.
    """
    assert play(kept_plan("what-we-made-is-there")).problems == []


def test_reclaim_of_an_envelope_does_not_delay_known_start_of_earlier_run() -> None:
    """Once, an owner held all GPUs of its ending family and of further victims.

    A run ahead, whose start was known, found too few beside them. (Seed 1102456420996.)
    """
    assert play(kept_plan("an-owner-leaves-a-known-start")).problems == []


def test_hold_that_a_new_leader_cannot_find_again_is_given_up() -> None:
    """The status that named the held place was lost, and the place was taken. The reservation was
    Blocked, planned again, and preempted a second time for one announcement. (Seed 381.)"""
    assert play(kept_plan("a-lost-hold-is-given-up")).problems == []


def test_plan_does_not_stand_beyond_a_window_that_an_edit_moved() -> None:
    """An edited Budget opened a window earlier than the next edge known so far, and a refusal stood
    after the window had opened. (Seed 263.)"""
    assert play(kept_plan("an-edited-window-is-noticed")).problems == []


IN_LINE = """title: One after another
fleet: [{"domain": "a", "nodes": 1, "gpus": 2, "flavor": "H", "region": "r1", "cluster": "c1"}]
budgets: {"t/t": {"owner": "o", "envelopes": [{"name": "e", "flavor": "H", "concurrency": 2}]}}
steps:
""" + "".join(
    f'  - {{"at": "1m", "submit": {{"t/r{number}": {{"owner": "o", "resources": '
    '{"gpuType": "H", "totalGPUs": 1, "gpusPerPod": 1}}}, "work": {"lasts": "10s"}}\n'
    for number in range(1, 25)
)


def test_late_listing_does_not_make_a_live_pod_count_as_deleted() -> None:
    """As above, but each pod's end frees the GPU of the next one, and some lists take seconds."""
    plan = FaultPlan(
        seed=7,
        profile=Profile.UNIFORM,
        story=IN_LINE,
        trouble=3 * MINUTE,
        store={"watch-break": 0.4, "watch-lag": 0.2},
        network={"net-spike": 0.06},
    )
    outcome = play(plan)
    assert outcome.problems == []
    assert outcome.marks["lease opened by Start"] == 24


TAKEN_OUT = """title: Nodes are taken out, one after another
fleet: [{"domain": "a", "nodes": 6, "gpus": 4, "flavor": "H", "region": "r1", "cluster": "c1"}]
budgets: {"t/t": {"owner": "o", "envelopes": [{"name": "e", "flavor": "H", "concurrency": 8}]}}
steps:
""" + "".join(
    f'  - {{"at": "{number + 1}m", "delete": {{"node": "a-0{number}"}}}}\n' for number in range(5)
)


@pytest.mark.parametrize("seed", [7, 8])
def test_node_whose_deletion_request_arrives_twice_is_gone(seed: int) -> None:
    """Once, the request arrived twice, and the answer that nothing was there came first.

    The simulated machines wrote nothing after that. (Seed 2223.)
    """
    plan = FaultPlan(
        seed=seed,
        profile=Profile.UNIFORM,
        story=TAKEN_OUT,
        trouble=7 * MINUTE,
        network={"net-copy": 0.5, "net-delay": 0.5},
    )
    assert play(plan).problems == []


RESTLESS = """title: A job that cannot settle, and is made again and again
fleet: [{"domain": "a", "nodes": 1, "gpus": 8, "flavor": "H", "region": "r", "cluster": "c"}]
budgets: {"x/x": {"owner": "x:one", "envelopes": [{"name": "e", "flavor": "H", "concurrency": 8}]}}
steps:
  - {"at": "1m", "submit": {"x/x": {"owner": "x:one", "resources": {"gpuType": "H", "totalGPUs": 4}, "malleable": {"minTotalGPUs": 4, "maxTotalGPUs": 8, "desiredTotalGPUs": 4}}}, "work": {"lasts": "2m", "exit": 1}}
  - {"at": "2m", "edit": {"run": "x/x", "spec": {"malleable": {"desiredTotalGPUs": 8}}}}
"""  # noqa: E501 - a step a line, as the generator writes them


@pytest.mark.parametrize("seed", [1, 3, 5])
def test_late_news_of_a_deleted_pod_does_not_affect_its_replacement(seed: int) -> None:
    """Once, a pod was deleted, the answer lost, and the pod made again after a second try.

    Then the event of its deletion arrived, and the new pod was forgotten.
    """
    plan = FaultPlan(
        seed=seed,
        profile=Profile.UNIFORM,
        story=RESTLESS,
        trouble=10 * MINUTE,
        store={"watch-lag": 0.5, "lose-answer": 0.2},
    )
    outcome = play(plan)
    assert outcome.problems == []
    assert outcome.marks["second attempt"] == 0


@pytest.mark.parametrize("cut", [5_250, 5_750, 6_250])
def test_tenure_that_is_over_is_not_revived_by_a_late_answer(cut: int) -> None:
    """The leader is disconnected for nearly its hold time, renews just in time, and is paused.

    The answer comes after the hold time, before the leader has noticed that it is over.
    """
    point = "before update Tenure"
    plan = FaultPlan(
        seed=1,
        profile=Profile.HUNTER,
        story=SMALL,
        trouble=3 * MINUTE,
        attacks=(
            Attack(at=20 * SECOND, harm=Harm.CUT, who=LEADER, lasts=cut),
            Attack(at=20 * SECOND + cut, harm=Harm.PAUSE, who=ANY, lasts=SECOND, point=point),
        ),
    )
    outcome = play(plan)
    assert outcome.effects["pause at a point"] == 1
    assert outcome.problems == []


def test_release_that_was_not_answered_is_sent_again() -> None:
    """A leader that stops cleanly is disconnected just then.

    The next one leads once the release arrives, and not only when the tenure would have ended.
    """
    plan = FaultPlan(
        seed=1,
        profile=Profile.UNIFORM,
        story=SMALL,
        trouble=4 * MINUTE,
        attacks=(
            Attack(at=90 * SECOND - 1, harm=Harm.CUT, who=LEADER, lasts=1_500),
            Attack(at=90 * SECOND, harm=Harm.STOP, who=LEADER, lasts=MINUTE),
        ),
    )
    outcome = play(plan)
    assert outcome.problems == []
    assert [take_over.handed_over for take_over in outcome.take_overs] == [True]


def test_rejected_group_takes_no_gpus_held_for_an_earlier_run() -> None:
    """Another group of its sweep had started, which was the minimum.

    Once, the rejected group was placed on the freed GPUs nevertheless, protected from lotteries,
    though these GPUs were held for a run ahead.
    """
    outcome = play(kept_plan("a-rejected-group-stands-in-line"))
    assert outcome.problems == []


def test_plan_may_stay_while_a_start_on_its_alternative_nodes_is_unconfirmed() -> None:
    """The plan's nodes fell silent, and on its alternative a run had just started by preemption.

    The plan was left unchanged, which does not break what was announced.
    """
    assert play(kept_plan("a-plan-stands-beside-a-newcomer")).problems == []
