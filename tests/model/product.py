"""Plays a file with the product: the shipped control loop, virtual time, a store in memory.

The record has the leases after every instant (from the exported ledger), the reservations at the
end of every instant, each run's end, and the seeds of the lotteries.
"""

from dataclasses import dataclass, field
from typing import Any

from tests.model.story import instant

from leasehold.shell.config.yamlfile import BadFile
from leasehold.shell.loop.defects import InvariantBroken
from leasehold.sim.scenario.act import StoryUsers
from leasehold.sim.scenario.ledger import ledger_lines, objects_of
from leasehold.sim.scenario.parse import parse_story
from leasehold.sim.scenario.stage import Stage, Violated
from leasehold.sim.scenario.story import Expect, PodDoes, RestartController

Holding = tuple[str, str, str, str]  # run, role, payer, node
Holdings = dict[Holding, int]
Plans = dict[str, tuple[str, str, int]]  # run: state, confidence, start


class Invalid(Exception):  # noqa: N818 - it says what the file is
    """The product does not accept the file, or a step of it."""


class NoSeed(Exception):  # noqa: N818 - it says what is missing
    """The model holds a lottery that the product did not hold."""


@dataclass
class Played:
    """The record of a story that the model or the product has played."""

    holdings: dict[int, Holdings] = field(default_factory=dict)
    plans: dict[int, Plans] = field(default_factory=dict)
    ends: dict[str, tuple[str, str, int]] = field(default_factory=dict)  # phase, reason, attempt
    told: list[tuple[int, str]] = field(default_factory=list)
    broken: str = ""
    broken_at: int = 0


class Seeds:
    """Seeds of the product's lotteries, by cause, beneficiary and instant; each is given once."""

    def __init__(self, resolutions: list[dict[str, Any]]) -> None:
        self._seeds: dict[tuple[str, str, int], list[str]] = {}
        for spec in sorted(resolutions, key=lambda each: (each["instant"], each["name"])):
            lottery = spec.get("lottery")
            if not lottery:
                continue
            beneficiary = spec.get("beneficiary")
            subject = spec["subject"]
            if beneficiary:
                subject = f"{beneficiary['namespace']}/{beneficiary['name']}"
            key = (spec["cause"], subject, instant(spec["instant"]))
            self._seeds.setdefault(key, []).append(lottery["seed"])

    def __call__(self, cause: str, subject: str, at: int) -> str:
        found = self._seeds.get((cause, subject, at))
        if not found:
            raise NoSeed(f"the model draws lots for {subject} ({cause}), the product does not")
        return found.pop(0)


def play_product(text: str) -> tuple[Played, Seeds]:
    """Play a file with the product; raise `Invalid` if the product refuses it."""
    try:
        story = parse_story(text, "story")
    except BadFile as bad:
        raise Invalid(str(bad)) from None
    played = Played()
    stage = Stage(
        story, seed=None, rates={}, observe=lambda at, said: played.told.append((at, said))
    )
    actor = StoryUsers(
        stage.store,
        stage.fleet,
        admission=stage.admission,
        world=lambda: stage.world,
        now=lambda: stage.now,
    )
    problem = ""
    try:
        stage.settle()
        for step in story.steps:
            _advance(stage, played, story.start + step.at)
            if isinstance(step.action, Expect):
                continue
            if isinstance(step.action, RestartController):
                stage.start_controller()
            else:
                missed = stage.kernel.complete(actor.perform(step), process=stage.user)
                if missed and not isinstance(step.action, PodDoes):  # a pod that is not there
                    problem = f"line {step.line}: {missed}"
                    break
            stage.settle()
        # Time alone may have changed why a run waits; the next turn reports it.
        stage.controller.wake()
        stage.settle()
        _note_plans(stage, played)
    except (Violated, InvariantBroken) as violated:
        played.broken, played.broken_at = f"invariant: {violated}", stage.now
    if problem:
        raise Invalid(problem)
    played.holdings = fold(ledger_lines(stage.store))
    played.ends = _ends(stage)
    resolutions = [
        {**each["spec"], "name": _order_of(each["metadata"]["name"])}
        for each in _objects(stage, "Resolution")
    ]
    return played, Seeds(resolutions)


def _objects(stage: Stage, kind: str) -> list[dict[str, Any]]:
    return [dict(each) for each in objects_of(stage.store, kind)]


def _order_of(name: str) -> int:
    """A Resolution's name ends with its batch."""
    return int(name.rsplit("-", 1)[1])


def _advance(stage: Stage, played: Played, at: int) -> None:
    if at <= stage.now:
        return
    _note_plans(stage, played)
    while (due := stage.kernel.next_timer()) is not None and due < at:
        stage.advance_to(due)
        _note_plans(stage, played)
    stage.advance_to(at)


def _note_plans(stage: Stage, played: Played) -> None:
    world = stage.world
    if world is None:
        return
    plans: Plans = {}
    for uid, run in world.runs.items():
        subject = world.reservation_of.get(uid)
        if subject is not None:
            found = world.reservations[subject]
            plans[run.key] = (str(found.state), str(found.confidence), found.starts)
    played.plans[stage.now] = plans


def fold(lines: list[dict[str, Any]]) -> dict[int, Holdings]:
    """Return the GPUs by run, role, payer and node after every instant of the ledger."""
    specs: dict[str, dict[str, Any]] = {}
    is_open: dict[str, bool] = {}
    after: dict[int, Holdings] = {}
    for line in lines:
        batch = line["batch"]
        for closed in batch.get("closed", []):
            is_open[closed["lease"]] = False
        for opened in batch.get("opened", []):
            specs[opened["name"]] = opened["spec"]
            is_open[opened["name"]] = True
        holdings: Holdings = {}
        for name, spec in specs.items():
            if is_open[name]:
                key = holding_of(spec)
                holdings[key] = holdings.get(key, 0) + len(spec["slice"]["slots"])
        after[batch["instant"]] = holdings
    return after


def holding_of(spec: dict[str, Any]) -> Holding:
    run, paid, lies = spec["runRef"], spec["paidBy"], spec["slice"]
    payer = f"{paid['namespace']}/{paid['budget']}/{paid['envelope']}"
    return (f"{run['namespace']}/{run['name']}", lies["role"], payer, lies["node"])


def _ends(stage: Stage) -> dict[str, tuple[str, str, int]]:
    ends = {}
    for each in _objects(stage, "Run"):
        status = each.get("status") or {}
        phase = str(status.get("phase", "Pending"))
        reason = phase
        for condition in status.get("conditions", []):
            if condition["status"] == "True" and condition["type"] in ("Failed", "Blocked"):
                reason = condition["reason"]
        name = f"{each['metadata']['namespace']}/{each['metadata']['name']}"
        ends[name] = (phase, reason, int(status.get("attempt", 0)))
    return ends
