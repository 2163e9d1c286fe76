"""What simulations found, or planted bugs showed to be missing, each as a small plan."""

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
    """A plan as it was when it failed: what seeds draw may change, and this does not."""
    return msgspec.json.decode((FOUND / f"{name}.json").read_bytes(), type=FaultPlan)


@pytest.mark.parametrize(
    ("point", "lasts"),
    [("before create Resolution", 17), ("before create Resolution", 40),
     ("after create Resolution", 40)],
)  # fmt: skip
def test_whoever_was_deposed_leaves_the_next_ones_proof_alone(point: str, lasts: int) -> None:
    """It woke up, found a Resolution of that name which was not its own, and put its own there. The
    shorter pause ends while the next one is between its proof and its commit."""
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
def test_a_stranger_s_proof_is_not_taken_for_ours(seed: int) -> None:
    """Nobody's yet: two stand still before they publish, and the one that was deposed goes on first
    and publishes its own. The next owner finds that one under its name."""
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
def test_whoever_was_deposed_while_it_recovered_removes_no_proof(seed: int) -> None:
    """It had sealed and read the chain, and stood still; what the next owner had published and
    committed meanwhile it took for left over, since no batch that it knew of names it. (Seed
    1102263051812, when that drew no attacks that lie in wait.)"""
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
def test_a_pod_that_could_not_be_made_is_made_a_moment_later(seed: int, fault: str) -> None:
    """Nobody waits until its start has taken too long: that would be another attempt."""
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
def test_whoever_was_deposed_before_it_made_a_pod_gives_it_no_node(seed: int) -> None:
    """It stood still, with a clock that nearly did, too; the next one was told meanwhile that the
    run is not wanted any more, and gave its place away. The pod that comes late must not run."""
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


def test_silence_is_no_longer_than_it_was_for_whoever_sees_it() -> None:
    """Whoever took over had a clock that was ahead: by that the node had been silent for long, and
    what ran there was moved to its spare while it still ran."""
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
def test_tenure_is_counted_from_before_a_renewal_was_sent(seed: int) -> None:
    """The answer to one was lost, and two seconds later the record told that it had been written;
    then nobody was reached any more. The clocks differ by as much as tenure allows."""
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


def test_what_a_lot_ends_is_not_refinanced_first() -> None:
    """Of a family's run that was drawn, one lease had just been moved to another payer: it was
    marked although it was closed."""
    assert play(kept_plan("a-lot-ends-what-moved")).problems == []


def test_what_a_blocked_reservation_held_is_seen_without_being_asked_for() -> None:
    """Its time came, it found no payer and was blocked; whoever could have what it had held, and
    had been considered before it, was reserved by the next turn, which nobody asked for."""
    assert play(kept_plan("blocked-lets-others-in")).problems == []


def test_room_that_is_awaited_in_vain_is_made_by_cuts_in_time() -> None:
    """A lease that was ending was to make the room, and its node stayed silent: after the drain
    timeout others are cut, and nobody woke the loop for that."""
    assert play(kept_plan("who-does-not-go-is-given-up")).problems == []


def test_a_leader_whose_clock_ran_ahead_is_judged_by_the_ledger_s_time() -> None:
    """Its leases ended in what was the future for everybody else."""
    assert play(kept_plan("a-leader-ahead-of-time")).problems == []


def test_what_is_due_on_the_minute_is_not_restless() -> None:
    """A reservation's time came in the very millisecond in which everything had to be at rest."""
    assert play(kept_plan("on-the-minute")).problems == []


def test_whoever_tries_again_rests_in_between() -> None:
    """A run's pods were made, and news of them came late: its status stayed untold, and as long as
    another's bind was refused the loop went round without a pause."""
    assert play(kept_plan("who-tries-again-rests")).problems == []


def test_a_run_does_not_grow_while_a_pod_waits_for_its_spare() -> None:
    """A filler still sat on the spare of a group that had lost a pod: its run, which wanted to be
    wider, counted with a part of a group, and the controller stopped."""
    assert play(kept_plan("no-growth-beside-a-vacancy")).problems == []


def test_an_overdue_lease_is_no_part_of_a_promise() -> None:
    """A pod had not gone for long, and nobody had planned with its place; the check that plans are
    kept put somebody's room there, and missed it where a known start was to be."""
    assert play(kept_plan("nobody-plans-with-the-overdue")).problems == []


def test_a_filler_that_others_would_pay_for_goes_with_its_spare() -> None:
    """An owner took its envelope back: a filler was moved to another payer, and then told to end
    with the spare under it. What `--shrink` left of seed 1000029."""
    text = (FOUND / "a-filler-goes-with-its-spare.yaml").read_text(encoding="utf-8")
    assert play(plan_of(parse_story(text, "found"), text)).problems == []


def test_what_we_made_is_there_though_an_older_list_has_it_not() -> None:
    """The watch of pods had broken, a list was read, a pod was made and answered for, and then the
    list came: its run lost it, as if somebody had deleted it. And the kubelet, busy with others,
    never told that the pod had ended."""
    assert play(kept_plan("what-we-made-is-there")).problems == []


def test_an_owner_takes_no_known_start_from_one_ahead() -> None:
    """Its family was going, and others would have to leave besides: it was kept all that it would
    have then, and one ahead, whose start was known, found too little beside that. (Seed
    1102456420996.)"""
    assert play(kept_plan("an-owner-leaves-a-known-start")).problems == []


IN_LINE = """title: One after another
fleet: [{"domain": "a", "nodes": 1, "gpus": 2, "flavor": "H", "region": "r1", "cluster": "c1"}]
budgets: {"t/t": {"owner": "o", "envelopes": [{"name": "e", "flavor": "H", "concurrency": 2}]}}
steps:
""" + "".join(
    f'  - {{"at": "1m", "submit": {{"t/r{number}": {{"owner": "o", "resources": '
    '{"gpuType": "H", "totalGPUs": 1, "gpusPerPod": 1}}}, "work": {"lasts": "10s"}}\n'
    for number in range(1, 25)
)


def test_a_list_that_comes_late_takes_no_pod_from_a_run() -> None:
    """As above, where each pod's end makes room for the next one, and some lists take seconds."""
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
def test_a_node_that_is_deleted_twice_is_gone(seed: int) -> None:
    """The request arrived twice, and that nothing was there to delete was heard first: nobody wrote
    for the simulated machines any more. (Seed 2223.)"""
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
def test_late_word_of_a_pod_that_is_gone_leaves_the_next_one_of_its_name(seed: int) -> None:
    """It was removed, the answer was lost, the next try found nothing and it was made again; then
    came word that it was gone, and the new one was forgotten."""
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
def test_a_tenure_that_was_over_is_not_believed_in_again(cut: int) -> None:
    """It was cut off for nearly as long as it may believe, asked just in time, and stood still: its
    answer comes when that is over, before anybody has told it so."""
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


def test_a_release_that_nobody_heard_is_sent_again() -> None:
    """Whoever stops cleanly is cut off for a moment just then: the next one leads as soon as it is
    heard, and not when its tenure would have been over."""
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


def test_a_group_that_was_rejected_takes_nothing_from_one_ahead() -> None:
    """Another group of its sweep had started, which was its minimum. It sat down all the same where
    room had been made, protected from lotteries, on GPUs that one ahead was promised."""
    outcome = play(kept_plan("a-rejected-group-stands-in-line"))
    assert outcome.problems == []


def test_a_plan_stands_while_nobody_knows_whether_a_newcomer_sits() -> None:
    """Its nodes had fallen silent, and where it could go next somebody had just started for whom
    others were cut: it was left as it was, which is no broken promise."""
    assert play(kept_plan("a-plan-stands-beside-a-newcomer")).problems == []
