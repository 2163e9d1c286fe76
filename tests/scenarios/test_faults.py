"""Every scenario again, under faults: invariants at every commit, and agreement at the end.

DST_SEED=12345 runs that seed alone. `make test` plays a few seeds of each file, `make test-seeds`
all twenty.
"""

import os
from collections import Counter
from pathlib import Path

import pytest
from tests.seeds import Budget

from leasehold.sim.faulty import KINDS
from leasehold.sim.scenario.runner import run_scenario

FILES = sorted(Path(__file__).parent.rglob("*.yaml"))
SEEDS = [int(os.environ["DST_SEED"])] if "DST_SEED" in os.environ else range(20)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_scenario_keeps_all_invariants_under_faults(file: Path, budget: Budget) -> None:
    for seed in budget.of(0.1, SEEDS):
        told: list[str] = []
        outcome = run_scenario(file, seed=seed, echo=told.append)
        problems = "\n".join([f"DST_SEED={seed} fails in {file}", *outcome.problems])
        assert outcome.code == 0, problems


STORY = """\
title: Two runs want one node, and a third comes when it dies
fleet: [{domain: a, nodes: 3, gpus: 8, flavor: H, region: r, cluster: c}]
budgets: {t/t: {owner: "t:one", envelopes: [{name: e, flavor: H, concurrency: 24}]}}
steps:
  - at: 0s
    submit:
      t/x:
        owner: "t:one"
        resources: {gpuType: H, totalGPUs: 16, gpusPerPod: 4}
        runtime: {checkpoint: 5m}
      t/y: {owner: "t:one", resources: {gpuType: H, totalGPUs: 16, gpusPerPod: 8}}
    work: {lasts: 2h}
  - {at: 1h, node: {name: a-00, is: dead}}
  - {at: 1h, submit: {t/z: {owner: "t:one", resources: {gpuType: H, totalGPUs: 8}}}}
  - {at: 2h, node: {name: a-00, is: ready}}
  - {at: 3h, cancel: t/z}
"""


def test_same_seed_repeats_its_history_and_every_fault_happens(tmp_path: Path) -> None:
    file = tmp_path / "story.yaml"
    file.write_text(STORY)
    effects: Counter[str] = Counter()
    for seed in range(6):
        rates = {kind: 0.01 if kind.startswith("kill") else 0.05 for kind in KINDS}
        first, second = (
            run_scenario(file, seed=seed, faults=rates, echo=lambda _: None) for _ in range(2)
        )
        assert first.digest == second.digest
        assert first.effects == second.effects
        effects += first.effects
    assert set(effects) == set(KINDS)
