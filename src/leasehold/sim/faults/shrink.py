"""Reduces a failing plan while it still fails in the same way.

The plan is reduced, not the seed. Attacks, kinds of faults, story steps and the random order of
tasks are removed, larger parts first. A removal is kept if the plan still fails. `file` makes a
scenario file of the result.
"""

import json
from collections.abc import Callable, Sequence
from typing import TypeVar

from msgspec.structs import replace

from leasehold.core.units import SECOND
from leasehold.sim.faults.file import joined_story, split_story
from leasehold.sim.faults.plan import FaultPlan
from leasehold.sim.faults.play import play
from leasehold.sim.scenario.trouble import Rollout

T = TypeVar("T")
RUNS_MAX = 300
BUDGETS = "budgets: "
DIED = "a task died: "


def rule_of(problem: str) -> str:
    """Return what identifies a failure: the name of the broken rule. For a task that died, it is
    the type of the error, with the invariant's name if an invariant was broken."""
    if problem.startswith(DIED):
        died = problem.removeprefix(DIED).split(" ")
        return " ".join(died[: 2 if died[0] == "InvariantBroken:" else 1])
    return problem.split(":", 1)[0].split(" ", 1)[0]


class Shrinker:
    """Reduces a failing plan. `told` is called with the size of each smaller plan that still
    fails."""

    def __init__(self, told: Callable[[str], object], runs_max: int = RUNS_MAX) -> None:
        self._told = told
        self._left = runs_max
        self._rule = ""

    def shrink(self, plan: FaultPlan) -> FaultPlan | None:
        """Return a smaller plan that breaks the same rule. Return None if the given plan does not
        fail."""
        outcome = play(plan)
        if not outcome.problems:
            return None
        self._rule = rule_of(outcome.problems[0])
        plan = self._cut_short(plan, outcome.at)
        for _ in range(3):
            before = plan
            plan = self._fewer_attacks(plan)
            plan = self._fewer_faults(plan)
            plan = self._fewer_steps(plan)
            plan = self._fewer_budgets(plan)
            plan = self._plainer(plan)
            if plan == before or self._left <= 0:
                break
        return plan

    def _fails(self, plan: FaultPlan) -> bool:
        if self._left <= 0:
            return False
        self._left -= 1
        try:
            problems = play(plan).problems
        except Exception:
            return False  # an invalid story is not a smaller one
        failed = bool(problems) and rule_of(problems[0]) == self._rule
        if failed:
            self._told(size_of(plan))
        return failed

    def _cut_short(self, plan: FaultPlan, at: int) -> FaultPlan:
        attacks = tuple(each for each in plan.attacks if each.at <= at)
        shorter = replace(plan, attacks=attacks, trouble=min(plan.trouble, at + SECOND))
        return shorter if self._fails(shorter) else plan

    def _fewer_attacks(self, plan: FaultPlan) -> FaultPlan:
        kept = self._minimal(plan.attacks, lambda some: replace(plan, attacks=tuple(some)))
        return replace(plan, attacks=tuple(kept))

    def _fewer_faults(self, plan: FaultPlan) -> FaultPlan:
        for part in ("store", "nodes", "network"):
            plan = self._fewer_of(plan, part)
        return plan

    def _fewer_of(self, plan: FaultPlan, part: str) -> FaultPlan:
        rates: dict[str, float] = getattr(plan, part)

        def planned(kinds: Sequence[str]) -> FaultPlan:
            return replace(plan, **{part: {kind: rates[kind] for kind in kinds}})

        return planned(self._minimal(sorted(rates), planned))

    def _fewer_steps(self, plan: FaultPlan) -> FaultPlan:
        head, steps = split_story(plan.story)
        kept = self._minimal(steps, lambda some: replace(plan, story=joined_story(head, some)))
        return replace(plan, story=joined_story(head, kept))

    def _fewer_budgets(self, plan: FaultPlan) -> FaultPlan:
        head, steps = split_story(plan.story)
        written = next((line for line in head if line.startswith(BUDGETS)), None)
        if written is None:
            return plan
        budgets: dict[str, object] = json.loads(written.removeprefix(BUDGETS))

        def planned(names: Sequence[str]) -> FaultPlan:
            kept = {name: budgets[name] for name in names}
            said = [f"{BUDGETS}{json.dumps(kept)}"] if kept else []
            at = head.index(written)
            return replace(plan, story=joined_story([*head[:at], *said, *head[at + 1 :]], steps))

        return planned(self._minimal(sorted(budgets), planned))

    def _plainer(self, plan: FaultPlan) -> FaultPlan:
        changes: tuple[dict[str, object], ...] = (
            {"is_shuffled": False}, {"drifts": {}}, {"offsets": {}}, {"stale": 0.0}, {"core": ""},
            {"late": 0.0},
            {"rollout": Rollout()}, {"rollout": replace(plan.rollout, outdated=0.0)},
            {"rollout": replace(plan.rollout, older=0.0, settings={})},
        )  # fmt: skip
        for change in changes:
            plainer = replace(plan, **change)
            if plainer != plan and self._fails(plainer):
                plan = plainer
        return plan

    def _minimal(self, items: Sequence[T], planned: Callable[[list[T]], FaultPlan]) -> list[T]:
        """Return the items without which the plan does not fail in the same way. Large parts are
        removed first, then smaller ones. `planned` makes a plan from some of the items."""
        kept = list(items)
        size = max(1, len(kept) // 2)
        while kept and self._left > 0:
            start = 0
            while start < len(kept):
                fewer = kept[:start] + kept[start + size :]
                if len(fewer) < len(kept) and self._fails(planned(fewer)):
                    kept = fewer
                else:
                    start += size
            if size == 1:
                break
            size //= 2
        return kept


def size_of(plan: FaultPlan) -> str:
    faults = len(plan.store) + len(plan.nodes) + len(plan.network)
    steps = len(split_story(plan.story)[1])
    return f"{len(plan.attacks)} attacks, {faults} kinds of faults, {steps} steps"
