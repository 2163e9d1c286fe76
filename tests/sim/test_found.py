"""What simulations found, each as the smallest plan that showed it."""

from pathlib import Path

import pytest

from leasehold.core.units import MINUTE, SECOND
from leasehold.sim.scenario.parse import load_story
from leasehold.sim.storm.plan import Attack, Harm, Profile, StormPlan, draw_plan
from leasehold.sim.storm.play import play

STORIES = Path(__file__).resolve().parents[1] / "scenarios"


@pytest.mark.parametrize("point", ["before create Resolution", "after create Resolution"])
def test_whoever_was_deposed_leaves_the_next_ones_proof_alone(point: str) -> None:
    """It woke up, found a Resolution of that name which was not its own, and put its own there."""
    (file,) = STORIES.glob("cuts-01-*.yaml")
    plan = StormPlan(
        seed=1,
        profile=Profile.HUNTER,
        story=file.read_text(encoding="utf-8"),
        trouble=load_story(file).steps[-1].at + MINUTE,
        attacks=(Attack(at=SECOND, harm=Harm.PAUSE, who="leader", lasts=40 * SECOND, point=point),),
    )
    outcome = play(plan)
    assert outcome.effects["pause at a point"] == 1
    assert outcome.problems == []


def test_what_a_lot_ends_is_not_refinanced_first() -> None:
    """Of a family's run that was drawn, one lease had just been moved to another payer: it was
    marked although it was closed."""
    assert play(draw_plan(1099909726657)).problems == []


def test_whoever_was_deposed_while_it_recovered_removes_no_proof() -> None:
    """It had sealed and read the chain, and stood still; what the next owner had published and
    committed meanwhile it took for left over, since no batch that it knew of names it."""
    assert play(draw_plan(1102263051812)).problems == []
