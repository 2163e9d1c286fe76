"""Statuses and plans are written when they have changed enough: not on every tick."""

import json
from pathlib import Path

from msgspec.structs import replace

from leasehold.core.reservations import Confidence, Reservation, State
from leasehold.core.units import MINUTE
from leasehold.shell.loop.effects import _is_news
from leasehold.sim.scenario.runner import run_scenario

STORY = """\
title: Made again under the same name
fleet:
  - {domain: a, nodes: 2, gpus: 8, flavor: H, region: r, cluster: c}
budgets:
  n/b: {owner: o, envelopes: [{name: e, flavor: H, concurrency: 64}]}
steps:
  - {at: 0s, submit: {n/h: {owner: q, resources: {gpuType: H, totalGPUs: 8, gpusPerPod: 8}}}}
  - {at: 1s, delete: {run: n/h}}
  - {at: 2s, submit: {n/h: {owner: q, resources: {gpuType: H, totalGPUs: 8, gpusPerPod: 8}}}}
  - {at: 2s, delete: {budget: n/b}}
  - {at: 3s, budget: {n/b: {owner: o, envelopes: [{name: e, flavor: H, concurrency: 64}]}}}
  - {at: 4s, expect: [{run: n/h, phase: Pending, because: OwnerNotAllowed}]}
"""
PLAN = Reservation(
    namespace="n",
    name="h-1",
    run="h",
    uid="u",
    batch=1,
    announced=0,
    state=State.PENDING,
    commitment="00",
    since=0,
    starts=60 * MINUTE,
    confidence=Confidence.EXACT,
)


def test_recreated_object_gets_its_own_status(tmp_path: Path) -> None:
    (tmp_path / "story.yaml").write_text(STORY, encoding="utf-8")
    assert run_scenario(tmp_path / "story.yaml", out=tmp_path, echo=lambda _: None).code == 0
    lines = (tmp_path / "objects.jsonl").read_text(encoding="utf-8").splitlines()
    objects = [json.loads(line) for line in lines]
    status = {each["kind"]: each.get("status") for each in objects}
    assert status["Budget"]["conditions"][0]["type"] == "Healthy"
    assert status["Run"]["phase"] == "Pending"


def test_plan_is_written_when_its_start_moves_by_more_than_a_minute() -> None:
    assert _is_news(None, PLAN)
    assert not _is_news(PLAN, PLAN)
    assert not _is_news(PLAN, replace(PLAN, starts=61 * MINUTE))
    assert not _is_news(PLAN, replace(PLAN, starts=59 * MINUTE, releases=(("x", 59 * MINUTE),)))
    assert _is_news(PLAN, replace(PLAN, starts=61 * MINUTE + 1))
    assert _is_news(PLAN, replace(PLAN, starts=59 * MINUTE - 1))
    assert _is_news(PLAN, replace(PLAN, state=State.RELEASED))
    assert _is_news(PLAN, replace(PLAN, nodes=("a-00",)))


def test_start_by_preemption_is_written_even_if_it_moves_by_a_millisecond() -> None:
    cuts = replace(PLAN, confidence=Confidence.CUTS)
    assert _is_news(cuts, replace(cuts, starts=60 * MINUTE - 1))
