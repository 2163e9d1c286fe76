"""Three of the shipped control plane under faults: what holds, and that the checks can fail."""

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
    """One story without faults, and these attacks."""
    return FaultPlan(seed=1, profile=profile, story=CALM, trouble=6 * 60 * SECOND, attacks=attacks)


@pytest.mark.parametrize("profile", list(Profile))
def test_a_seed_of_each_profile_holds_and_is_the_same_twice(profile: Profile) -> None:
    outcome, _ = play_seed((7, True, profile))
    assert outcome.problems == []
    assert outcome.commits > 0


def test_the_same_seed_is_the_same_history_whatever_the_hash_seed() -> None:
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


def test_without_trouble_one_leads_all_the_time() -> None:
    outcome = play(calm(profile=Profile.QUIET))
    assert outcome.problems == []
    assert outcome.take_overs == []


def test_a_clean_stop_hands_over_at_once() -> None:
    outcome = play(calm(Attack(at=150 * SECOND, harm=Harm.STOP, who="leader", lasts=SECOND)))
    assert outcome.problems == []
    (handed,) = outcome.take_overs
    assert handed.handed_over
    assert handed.took == 0


def test_a_leader_that_is_cut_off_stops_before_another_begins() -> None:
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
def test_whoever_stands_still_in_its_commit_is_deposed(point: str) -> None:
    plan = calm(
        Attack(at=59 * SECOND, harm=Harm.PAUSE, who="leader", lasts=40 * SECOND, point=point)
    )
    outcome = play(plan, keep_trace=True)
    assert outcome.problems == []
    assert outcome.effects["pause at a point"] == 1
    assert [each.handed_over for each in outcome.take_overs] == [False]


def test_the_core_is_enough() -> None:
    plan = replace(calm(profile=Profile.LIVENESS), core="c2")
    outcome = play(plan, keep_trace=True)
    assert outcome.problems == []
    assert "c2: gained" in "\n".join(outcome.trace)


def test_a_program_that_does_not_know_the_format_leaves_the_ledger_alone() -> None:
    """Whoever is started again is such a one, as long as somebody else is not; the leader dies."""
    attacks = [
        Attack(at=at * SECOND, harm=Harm.CRASH, who=who, lasts=SECOND)
        for at, who in ((20, "standby"), (120, "leader"), (200, "leader"))
    ]
    outcome = play(replace(calm(*attacks), rollout=Rollout(outdated=1.0)))
    assert outcome.problems == []
    assert outcome.marks["outdated program left it alone"] > 0


def test_settings_may_differ_while_they_are_rolled_out() -> None:
    stop = [Attack(at=at * SECOND, harm=Harm.STOP, who="leader", lasts=SECOND)
            for at in range(30, 300, 30)]  # fmt: skip
    rollout = Rollout(settings={"activationLead": "1m"}, older=0.5)
    outcome = play(replace(calm(*stop), rollout=rollout))
    assert outcome.problems == []
    assert outcome.effects["older settings"] > 0
    assert outcome.marks["taken over with other settings"] > 0


def test_a_status_that_comes_late_does_not_stay() -> None:
    outcome = play(replace(calm(), late=1.0))
    assert outcome.problems == []
    assert outcome.marks["status came late"] > 0


def test_a_plan_is_a_file() -> None:
    plan = draw_plan(5)
    assert msgspec.json.decode(msgspec.json.encode(plan), type=FaultPlan) == plan


def test_what_can_be_drawn_is_known() -> None:
    for seed in range(50):
        plan = draw_plan(seed)
        assert set(plan.store) <= set(STORE_FAULTS)
        assert set(plan.network) <= set(NETWORK_FAULTS)
        assert all(0 <= attack.at < plan.trouble for attack in plan.attacks)


def test_fresh_seeds_are_the_same_for_the_same_text() -> None:
    assert fresh_seeds("abc", 3) == fresh_seeds("abc", 3)
    assert fresh_seeds("abc", 3) != fresh_seeds("abd", 3)


def test_a_mark_that_is_never_reached_is_told() -> None:
    assert BatchSums().missing() == list(EXPECTED)


def _slow_leader() -> Attack:
    """By more than the margins allow for."""
    return Attack(at=20 * SECOND, harm=Harm.DRIFT, who="leader", lasts=90 * SECOND, amount=-600_000)


def test_a_failure_is_made_smaller_and_fails_alone() -> None:
    """A clock that is slower than the margins allow for, and a cut: with both, two believe."""
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


def test_a_failure_is_known_again_by_what_broke() -> None:
    broken = "a task died: InvariantBroken: INV-LINE-IS-KEPT a/x: its start is gone in task c1"
    assert rule_of(broken) == "InvariantBroken: INV-LINE-IS-KEPT"
    assert rule_of("a task died: AssertionError: it is over in task c2") == "AssertionError:"
    assert rule_of("EpochMonotonic: from 2 to 1") == "EpochMonotonic"


def test_where_clocks_are_broken_the_head_is_enough() -> None:
    """The same, but what tenure assumes is not assumed: nothing is decided twice all the same."""
    plan = calm(
        _slow_leader(),
        Attack(at=40 * SECOND, harm=Harm.CUT, who="leader", lasts=16 * SECOND),
        profile=Profile.BREAKING,
    )
    outcome = play(plan)
    assert outcome.problems == []
    assert len(outcome.take_overs) == 1


def test_an_answer_that_tells_what_is_not_committed_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def hasty(controller: Controller, patience: int) -> World | None:
        return controller.world

    slow = replace(calm(profile=Profile.UNIFORM), network={"net-delay": 1.0})
    held = play(slow)
    assert held.problems == []
    assert held.evaluated["answers"] > 0
    monkeypatch.setattr(Controller, "at_rest", hasty)
    assert rule_of(play(slow).problems[0]) == "AnswersAreCommitted"
