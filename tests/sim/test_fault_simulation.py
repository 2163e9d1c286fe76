"""Three replicas of the product's control plane under faults: what holds, and how checks fail."""

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from leasehold.core.units import SECOND
from leasehold.core.world.world import World
from leasehold.shell.loop.loop import Controller
from leasehold.sim.faults.coverage import EXPECTED
from leasehold.sim.faults.many import BatchSums, fresh_seeds, play_seed
from leasehold.sim.faults.plan import FaultPlan, draw_plan
from leasehold.sim.faults.play import play
from leasehold.sim.faults.shrink import Shrinker, rule_of
from leasehold.sim.faulty import KINDS as STORE_FAULTS
from leasehold.sim.network import KINDS as NETWORK_FAULTS
from leasehold.sim.scenario.trouble import Attack, Harm, Profile, Rollout

ROOT = Path(__file__).resolve().parents[2]

CALM = """title: A small one
fleet: [{"domain": "a", "nodes": 3, "gpus": 4, "flavor": "H", "region": "r1", "cluster": "c1"}]
budgets: {"team/team": {"owner": "org:a", "envelopes": [{"name": "e", "flavor": "H", "concurrency": 12}]}}
steps:
  - {"at": "1m", "submit": {"team/one": {"owner": "org:a", "resources": {"gpuType": "H", "totalGPUs": 8, "gpusPerPod": 4}}}, "work": {"lasts": "4m"}}
  - {"at": "3m", "submit": {"team/two": {"owner": "org:a", "resources": {"gpuType": "H", "totalGPUs": 12, "gpusPerPod": 4}}}, "work": {"lasts": "2m"}}
  - {"at": "4m", "node": {"name": "a-00", "is": "cordoned"}}
  - {"at": "5m", "node": {"name": "a-00", "is": "uncordoned"}}
"""  # noqa: E501 - a step a line, as the generator writes them


def calm(*attacks: Attack, profile: Profile = Profile.UNIFORM) -> FaultPlan:
    """Return one story without faults, with these attacks."""
    return FaultPlan(seed=1, profile=profile, story=CALM, trouble=6 * 60 * SECOND, attacks=attacks)


@pytest.mark.parametrize("profile", list(Profile))
def test_seed_of_each_profile_has_no_problems_and_is_repeatable(profile: Profile) -> None:
    outcome, _ = play_seed((7, True, profile))
    assert outcome.problems == []
    assert outcome.commits > 0


def test_same_seed_gives_the_same_history_for_any_hash_seed() -> None:
    asked = ("sim", "--seeds", "23..24", "--digest")
    said = [
        subprocess.run(
            [sys.executable, "-c", "from leasehold.cli.main import main; main()", *asked],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            timeout=240,
            check=True,
        ).stdout
        for seed in ("1", "77")
    ]
    assert said[0] == said[1]
    lines = [line.split() for line in said[0].splitlines()]
    assert [(seed, len(digest)) for seed, digest in lines] == [("23", 64), ("24", 64)]


def test_one_replica_leads_all_the_time_if_there_are_no_faults() -> None:
    outcome = play(calm(profile=Profile.QUIET))
    assert outcome.problems == []
    assert outcome.take_overs == []


def test_cleanly_stopped_leader_hands_over_at_once() -> None:
    outcome = play(calm(Attack(at=150 * SECOND, harm=Harm.STOP, who="leader", lasts=SECOND)))
    assert outcome.problems == []
    (handed,) = outcome.take_overs
    assert handed.handed_over
    assert handed.took == 0


def test_disconnected_leader_stops_before_another_begins() -> None:
    plan = calm(Attack(at=150 * SECOND, harm=Harm.CUT, who="leader", lasts=60 * SECOND))
    outcome = play(plan, keep_trace=True)
    assert outcome.problems == []
    (taken,) = outcome.take_overs
    assert not taken.handed_over
    assert 15 * SECOND < taken.took < 19 * SECOND
    told = [line for line in outcome.trace if "lost" in line or "gained" in line]
    assert ["gained epoch 1" in told[0], "lost" in told[1], "gained epoch 2" in told[2]] == [
        True, True, True,
    ]  # fmt: skip


@pytest.mark.parametrize("point", ["before update LedgerHead", "after create LedgerBatch"])
def test_leader_paused_in_its_commit_is_deposed(point: str) -> None:
    plan = calm(
        Attack(at=59 * SECOND, harm=Harm.PAUSE, who="leader", lasts=40 * SECOND, point=point)
    )
    outcome = play(plan, keep_trace=True)
    assert outcome.problems == []
    assert outcome.effects["pause at a point"] == 1
    assert [each.handed_over for each in outcome.take_overs] == [False]


def test_only_replica_that_is_healed_at_the_end_can_lead() -> None:
    plan = replace(calm(profile=Profile.LIVENESS), core="c2")
    outcome = play(plan, keep_trace=True)
    assert outcome.problems == []
    assert "c2: gained" in "\n".join(outcome.trace)


def test_program_that_does_not_know_the_format_leaves_the_ledger_alone() -> None:
    """A restarted replica is such a program if no other one is; the leader dies."""
    attacks = [
        Attack(at=at * SECOND, harm=Harm.CRASH, who=who, lasts=SECOND)
        for at, who in ((20, "standby"), (120, "leader"), (200, "leader"))
    ]
    outcome = play(replace(calm(*attacks), rollout=Rollout(outdated=1.0)))
    assert outcome.problems == []
    assert outcome.marks["outdated program left it alone"] > 0


def test_replicas_may_have_different_settings_during_a_rollout() -> None:
    stop = [Attack(at=at * SECOND, harm=Harm.STOP, who="leader", lasts=SECOND)
            for at in range(30, 300, 30)]  # fmt: skip
    rollout = Rollout(settings={"activationLead": "1m"}, older=0.5)
    outcome = play(replace(calm(*stop), rollout=rollout))
    assert outcome.problems == []
    assert outcome.effects["older settings"] > 0
    assert outcome.marks["taken over with other settings"] > 0


def test_late_status_of_a_deposed_leader_is_corrected() -> None:
    outcome = play(replace(calm(), late=1.0))
    assert outcome.problems == []
    assert outcome.marks["status came late"] > 0


def test_plan_is_the_same_after_writing_and_reading() -> None:
    plan = draw_plan(5)
    assert msgspec.json.decode(msgspec.json.encode(plan), type=FaultPlan) == plan


def test_drawn_fault_plans_have_only_known_faults_and_attacks_in_time() -> None:
    for seed in range(50):
        plan = draw_plan(seed)
        assert set(plan.store) <= set(STORE_FAULTS)
        assert set(plan.network) <= set(NETWORK_FAULTS)
        assert all(0 <= attack.at < plan.trouble for attack in plan.attacks)


def test_fresh_seeds_differ_for_different_texts_and_repeat_for_the_same_text() -> None:
    assert fresh_seeds("abc", 3) == fresh_seeds("abc", 3)
    assert fresh_seeds("abc", 3) != fresh_seeds("abd", 3)


def test_situations_that_no_seed_reached_are_reported() -> None:
    assert BatchSums().missing() == list(EXPECTED)


def _slow_leader() -> Attack:
    """Slow the leader's clock by more than the margins allow for."""
    return Attack(at=20 * SECOND, harm=Harm.DRIFT, who="leader", lasts=90 * SECOND, amount=-600_000)


def test_failure_is_shrunk_to_a_plan_that_fails_by_itself() -> None:
    """With a clock slower than the margins allow for and a disconnection, two replicas believe."""
    plan = replace(
        calm(
            Attack(at=10 * SECOND, harm=Harm.JUMP, who="leader", lasts=SECOND, amount=SECOND),
            Attack(
                at=20 * SECOND, harm=Harm.DRIFT, who="leader", lasts=90 * SECOND, amount=-600_000
            ),
            Attack(at=40 * SECOND, harm=Harm.CUT, who="leader", lasts=60 * SECOND),
            Attack(at=200 * SECOND, harm=Harm.STOP, who="leader", lasts=SECOND),
        ),
        store={"slow": 0.05, "conflict": 0.05},
    )
    assert rule_of(play(plan).problems[0]) == "ExpiredLeaseClaimable"
    smaller = Shrinker(lambda _: None).shrink(plan)
    assert smaller is not None
    assert [attack.harm for attack in smaller.attacks] == [Harm.DRIFT, Harm.CUT]
    assert smaller.store == {}
    assert smaller.story.rstrip().endswith("steps: []")
    assert rule_of(play(smaller).problems[0]) == "ExpiredLeaseClaimable"


def test_failure_is_identified_by_the_broken_rule() -> None:
    broken = "a task died: InvariantBroken: INV-LINE-IS-KEPT a/x: its start is gone in task c1"
    assert rule_of(broken) == "InvariantBroken: INV-LINE-IS-KEPT"
    assert rule_of("a task died: AssertionError: it is over in task c2") == "AssertionError:"
    assert rule_of("EpochMonotonic: from 2 to 1") == "EpochMonotonic"


def test_ledger_head_prevents_double_decisions_under_broken_clocks() -> None:
    """The tenure's assumptions do not hold here; still, nothing is decided twice."""
    plan = calm(
        _slow_leader(),
        Attack(at=40 * SECOND, harm=Harm.CUT, who="leader", lasts=16 * SECOND),
        profile=Profile.BREAKING,
    )
    outcome = play(plan)
    assert outcome.problems == []
    assert len(outcome.take_overs) == 1


def test_check_reports_an_answer_with_uncommitted_facts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def return_unsettled_world(controller: Controller, patience: int) -> World | None:
        return controller.world

    slow = replace(calm(profile=Profile.UNIFORM), network={"net-delay": 1.0})
    held = play(slow)
    assert held.problems == []
    assert held.evaluated["answers"] > 0
    monkeypatch.setattr(Controller, "at_rest", return_unsettled_world)
    assert rule_of(play(slow).problems[0]) == "AnswersAreCommitted"
