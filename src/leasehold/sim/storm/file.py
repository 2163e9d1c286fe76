"""A plan as a scenario file, and back: attacks are steps, faults are the file's `trouble`.

What `leasehold sim --shrink` leaves behind, and what `leasehold sim scenario` plays of a file that
has trouble. Both ways the history is the same to the byte.
"""

import json

from leasehold.core.units import format_span
from leasehold.sim.scenario.parse import parse_story
from leasehold.sim.scenario.story import Story
from leasehold.sim.scenario.trouble import Attack
from leasehold.sim.storm.plan import StormPlan

Wire = dict[str, object]


def split_story(story: str) -> tuple[list[str], list[str]]:
    """Everything up to `steps:`, and the steps, one a line."""
    lines = story.rstrip("\n").split("\n")
    cut = next(index for index, line in enumerate(lines) if line.startswith("steps:")) + 1
    return lines[:cut], lines[cut:]


def joined_story(head: list[str], steps: list[str]) -> str:
    if not steps:
        return "\n".join([*head[:-1], "steps: []", ""])
    return "\n".join([*head[:-1], "steps:", *steps, ""])


def scenario_of(plan: StormPlan, title: str) -> str:
    """Of a plan whose story has one step a line, as seeds draw them."""
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


def plan_of(story: Story, text: str) -> StormPlan:
    """`text` is the file's."""
    trouble = story.trouble
    assert trouble is not None, "a story without trouble is played by the scenario runner"
    return StormPlan(
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


def _trouble(plan: StormPlan) -> Wire:
    """What is as usual is left out."""
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


def _rollout(plan: StormPlan) -> Wire:
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
