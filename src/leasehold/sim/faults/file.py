"""Converts a fault plan to a scenario file and back.

In the file, each attack is a step, and the rates of faults are under `trouble`. `leasehold sim
--shrink` writes such files, and `leasehold sim scenario` plays them. A plan and its file produce
the same history, byte for byte.
"""

import json

from leasehold.core.units import format_span
from leasehold.sim.faults.plan import FaultPlan
from leasehold.sim.scenario.parse import parse_story
from leasehold.sim.scenario.story import Story
from leasehold.sim.scenario.trouble import Attack

Wire = dict[str, object]


def split_story(story: str) -> tuple[list[str], list[str]]:
    """Return the lines of a story up to `steps:`, and the lines of its steps."""
    lines = story.rstrip("\n").split("\n")
    cut = next(index for index, line in enumerate(lines) if line.startswith("steps:")) + 1
    return lines[:cut], lines[cut:]


def joined_story(head: list[str], steps: list[str]) -> str:
    if not steps:
        return "\n".join([*head[:-1], "steps: []", ""])
    return "\n".join([*head[:-1], "steps:", *steps, ""])


def scenario_of(plan: FaultPlan, title: str) -> str:
    """Return the text of a scenario file that plays like the plan. The plan's story must have one
    step per line."""
    head, steps = split_story(plan.story)
    told = parse_story(plan.story, "the plan's story")
    lines = [(step.at, line) for step, line in zip(told.steps, steps, strict=True)]
    for attack in plan.attacks:
        step = {"at": format_span(attack.at), "attack": _attack(attack)}
        lines.append((attack.at, f"  - {json.dumps(step)}"))
    lines.sort(key=lambda line: line[0])
    named = [line for line in head if not line.startswith("title:")]
    opening = [f"title: {json.dumps(title)}", f"trouble: {json.dumps(_trouble(plan))}"]
    return joined_story([*opening, *named], [line for _, line in lines])


def plan_of(story: Story, text: str) -> FaultPlan:
    """Return the plan that plays a story with `trouble`. `text` is the content of the story's
    file."""
    trouble = story.trouble
    assert trouble is not None, "a story without trouble is played by the scenario runner"
    return FaultPlan(
        seed=trouble.seed,
        profile=trouble.profile,
        story=text,
        trouble=trouble.lasts,
        store=trouble.store,
        nodes=trouble.nodes,
        network=trouble.network,
        attacks=tuple(step.action for step in story.steps if isinstance(step.action, Attack)),
        drifts=trouble.drifts,
        offsets=trouble.offsets,
        stale=trouble.stale,
        late=trouble.late,
        rollout=trouble.rollout,
        core=trouble.core,
        is_shuffled=trouble.is_shuffled,
    )


def _trouble(plan: FaultPlan) -> Wire:
    """Return the value of `trouble` in a scenario file; settings with default values are left
    out."""
    said: Wire = {
        "store": plan.store,
        "nodes": plan.nodes,
        "network": plan.network,
        "drifts": plan.drifts,
        "offsets": plan.offsets,
        "stale": plan.stale,
        "late": plan.late,
        "rollout": _rollout(plan),
        "core": plan.core,
    }
    always: Wire = {
        "seed": plan.seed,
        "profile": plan.profile.value,
        "lasts": format_span(plan.trouble),
    }
    ordered: Wire = {} if plan.is_shuffled else {"shuffled": False}
    return {**always, **{key: value for key, value in said.items() if value}, **ordered}


def _rollout(plan: FaultPlan) -> Wire:
    rollout = plan.rollout
    said: Wire = {
        "settings": rollout.settings, "older": rollout.older, "outdated": rollout.outdated,
    }  # fmt: skip
    return {key: value for key, value in said.items() if value}


def _attack(attack: Attack) -> Wire:
    said: Wire = {
        "lasts": format_span(attack.lasts) if attack.lasts else "",
        "amount": attack.amount,
        "point": attack.point,
    }
    always: Wire = {"harm": attack.harm.value, "who": attack.who}
    return {**always, **{key: value for key, value in said.items() if value}}
