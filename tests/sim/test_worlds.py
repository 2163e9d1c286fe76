"""Faults of a simulated world other than killed processes, and the checks at its end."""

from random import Random

import pytest
from msgspec.structs import replace

from leasehold.core.names import Wire
from leasehold.core.units import SECOND
from leasehold.shell.loop.effects import Effects
from leasehold.shell.plane import Plane
from leasehold.sim.faults.plan import FaultPlan, draw_plan
from leasehold.sim.faults.play import play
from leasehold.sim.faults.settings import with_failing_silence
from leasehold.sim.faults.shrink import rule_of
from leasehold.sim.faults.stories import story_of, with_broken_gpus
from leasehold.sim.scenario.trouble import BUSY_NODE, LEADER, Attack, Harm, Profile

STORY = """title: A small one
fleet: [{"domain": "a", "nodes": 3, "gpus": 4, "flavor": "H", "region": "r1", "cluster": "c1"}]
budgets: {"team/team": {"owner": "org:a", "envelopes": [{"name": "e", "flavor": "H", "concurrency": 12}]}}
steps:
  - {"at": "1m", "submit": {"team/one": {"owner": "org:a", "resources": {"gpuType": "H", "totalGPUs": 8, "gpusPerPod": 4}}}, "work": {"lasts": "4m"}}
  - {"at": "2m", "node": {"name": "a-02", "gpus": 3}}
  - {"at": "3m", "submit": {"team/two": {"owner": "org:a", "resources": {"gpuType": "H", "totalGPUs": 12, "gpusPerPod": 4}}}, "work": {"lasts": "2m"}}
"""  # noqa: E501 - a step a line, as the generator writes them


def plan(*attacks: Attack) -> FaultPlan:
    return FaultPlan(
        seed=1, profile=Profile.UNIFORM, story=STORY, trouble=360 * SECOND, attacks=attacks
    )


@pytest.mark.parametrize("harm", [Harm.CUT, Harm.CUT_REQUESTS, Harm.CUT_ANSWERS])
def test_disconnected_node_causes_no_problem(harm: Harm) -> None:
    outcome = play(plan(Attack(at=90 * SECOND, harm=harm, who=BUSY_NODE, lasts=50 * SECOND)))
    assert outcome.problems == []
    assert outcome.effects[f"{harm} of a node"] == 1
    assert outcome.effects["node missed"] == (harm is not Harm.CUT_ANSWERS)


def test_stale_reads_from_a_lagging_replica_cause_no_problem() -> None:
    troubled = plan(Attack(at=90 * SECOND, harm=Harm.CUT, who=LEADER, lasts=50 * SECOND))
    outcome = play(replace(troubled, stale=0.5))
    assert outcome.problems == []
    assert outcome.effects["stale-read"] > 0


@pytest.mark.parametrize("point", ["before make Pod", "after create LedgerBatch"])
def test_user_change_in_the_middle_of_a_start_causes_no_problem(point: str) -> None:
    outcome = play(plan(Attack(at=30 * SECOND, harm=Harm.MEDDLE, who=LEADER, point=point)))
    assert outcome.problems == []
    assert outcome.effects["meddle"] == 1


def test_some_random_stories_get_broken_gpus_and_others_stay_unchanged() -> None:
    said = [draw_plan(seed).story for seed in range(40)]
    with_them = [text for text in said if '"gpus": ' in text.partition("steps:")[2]]
    assert 5 < len(with_them) < 35
    for seed, text in enumerate(said):
        if text not in with_them:
            told = story_of(seed, gaps=(0, 0, 0, 1, 1, 2, 3, 5, 9), steps_max=30)
            assert text.partition("steps:")[2] == told.partition("steps:")[2]


def test_some_random_stories_get_a_silence_limit_and_nothing_else_changes() -> None:
    for seed in range(40):
        before = story_of(seed)
        after = with_failing_silence(before, Random(seed))
        config, rest = (
            [line for line in after.split("\n") if line.startswith("config:") is is_config]
            for is_config in (True, False)
        )
        assert rest == [line for line in before.split("\n") if not line.startswith("config:")]
        assert ("nodeFailure.after" in config[0]) is (after != before)
    drawn = [draw_plan(seed).story for seed in range(100)]
    assert 20 < sum("nodeFailure.after" in text for text in drawn) < 60


def test_steps_of_a_story_keep_their_order_when_broken_gpus_are_added() -> None:
    before = story_of(4, gaps=(0, 1), steps_max=20)
    after = with_broken_gpus(before, Random(1))
    kept = [line for line in after.split("\n") if line in before.split("\n")]
    assert "\n".join(kept) == before
    assert len(after) > len(before)


def test_check_reports_a_wrong_status_of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    written = Effects._status_orders

    def write_wrong_phase(self: Effects, owed: dict[str, None], key: str, place: tuple[str, ...],
                  status: Wire, **more: object) -> list[object]:  # fmt: skip
        told = {**status, "phase": "Pending"} if place[0] == "Run" else status
        return written(self, owed, key, place, told, **more)  # type: ignore[arg-type, return-value]

    monkeypatch.setattr(Effects, "_status_orders", write_wrong_phase)
    assert rule_of(play(plan()).problems[0]) == "StatusesAreTrue"


def test_check_reports_a_deposed_leader_that_continues(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a very slow clock, a leader decides after another one has sealed."""
    slow = Attack(at=20 * SECOND, harm=Harm.DRIFT, who=LEADER, lasts=90 * SECOND, amount=-750_000)
    cut = Attack(at=40 * SECOND, harm=Harm.CUT, who=LEADER, lasts=20 * SECOND - 50)
    broken = replace(plan(slow, cut), profile=Profile.BREAKING)
    held = play(broken)
    assert held.problems == []
    assert held.marks["deposed by the head"] == 1
    monkeypatch.setattr(Plane, "on_deposed", lambda *_: None)
    assert rule_of(play(broken).problems[0]) == "DeposedContends"
