"""The metrics that a scrape shows after things happened, with the product's loop."""

import re
import time

import pytest
from tests.unit.shell.plant import Plant

from leasehold.control.turn import Turn
from leasehold.core.units import HOUR, MINUTE
from leasehold.shell.observe import costs as costs_module
from leasehold.shell.observe.costs import DecisionCosts
from leasehold.shell.observe.metrics import Metrics
from leasehold.sim.kernel import Kernel

# The names that 6-interfaces promises to authors of alerts.
PROMISED = """
run_admissions_total leases_open leases_closed_total borrowing_attempts_total
borrowing_denied_total borrowed_gpus_current borrowed_gpu_hours_total budget_gpus budget_gpu_hours
lending_cap_used_ratio resolver_invocations_total resolver_spares_dropped_total
resolver_shrinks_total resolver_lottery_draws_total spares_active spare_swaps_total
filler_preemptions_total reservation_seconds_until_start decide_seconds
decide_run_seconds commit_seconds bind_seconds tenure_epoch ledger_head drift_found_total decides
ledger_gaps
"""


class Scraped:
    def __init__(self, **plant: object) -> None:
        self._metrics: Metrics | None = None
        self.plant = Plant(on_turn=self._after_turn, **plant)  # type: ignore[arg-type]
        self._metrics = Metrics(lambda: self.plant.controller.world, self.plant.control.clock)

    def _after_turn(self, turn: Turn) -> None:
        if self._metrics is not None:
            self._metrics.after_turn(turn)

    @property
    def text(self) -> str:
        assert self._metrics is not None
        return self._metrics.text().decode()

    def value(self, name: str, **labels: str) -> float | None:
        """Return the value of the one sample with these labels; None if there is none."""
        found = []
        for line in self.text.splitlines():
            match = re.fullmatch(r"leasehold_(\w+)(?:\{(.*)\})? (\S+)", line)
            if match and match[1] == name:
                has = dict(re.findall(r'(\w+)="([^"]*)"', match[2] or ""))
                if labels.items() <= has.items():
                    found.append(float(match[3]))
        assert len(found) <= 1, found
        return found[0] if found else None


def test_every_promised_metric_is_exported() -> None:
    scraped = Scraped()
    scraped.plant.wait(1)
    text = scraped.text
    for name in PROMISED.split():
        assert re.search(rf"^# TYPE leasehold_{name} ", text, re.M), name


def test_decide_time_is_cpu_time_and_commit_time_is_elapsed_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])
    metrics = Metrics(lambda: None, Kernel(0).process("a").clock)

    for step in ("decide", "commit"):
        metrics.begin(step)
        clock[0] += 120
        metrics.end(step)

    sums = dict(re.findall(r"leasehold_(\w+)_seconds_sum (\S+)", metrics.text().decode()))
    assert float(sums["decide"]) < 60
    assert float(sums["commit"]) == 120


def test_run_with_the_most_expensive_decisions_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    costs = DecisionCosts()
    said: list[dict[str, object]] = []
    monkeypatch.setattr(costs_module._log, "warning", lambda _, **more: said.append(more))
    plant = Plant(nodes=3, on_turn=lambda turn: costs.note(turn, 2.0))
    plant.submit("b/small")
    resources = {"gpuType": "H", "totalGPUs": 4000, "gpusPerPod": 1}
    plant.submit("a/large", gang="Group", resources=resources, locality={"groupGPUs": 1})
    plant.wait(MINUTE)

    [metric] = costs.collect()
    [first, *others] = metric.samples
    assert first.labels == {"run": "a/large"}
    assert all(first.value > 10 * other.value for other in others)
    assert said[-1]["run"] == "a/large"


def test_admissions_and_closed_leases_are_counted_when_committed() -> None:
    scraped = Scraped(nodes=1)
    scraped.plant.submit("a/one", lasts=MINUTE)
    scraped.plant.submit("b/two")
    scraped.plant.wait(30_000)
    assert scraped.value("run_admissions_total", result="success") == 1
    assert scraped.value("run_admissions_total", result="failure") == 1
    assert scraped.value("leases_open", role="Active") == 1
    assert scraped.value("leases_closed_total", reason="Completed") is None
    scraped.plant.wait(MINUTE)
    assert scraped.value("leases_closed_total", reason="Completed") == 1
    assert scraped.value("run_admissions_total", result="success") == 2
    head = scraped.plant.world.head
    assert scraped.value("ledger_head") == head.seq > 0
    assert scraped.value("tenure_epoch") == head.epoch


def test_budget_metrics_show_used_and_free_gpus_and_used_hours() -> None:
    scraped = Scraped(concurrency=20)
    scraped.plant.submit("a/one")
    scraped.plant.wait(HOUR)
    assert scraped.value("budget_gpus", envelope="a/a/e", state="used") == 8
    assert scraped.value("budget_gpus", envelope="a/a/e", state="free") == 12
    assert scraped.value("budget_gpus", envelope="a/a/e", state="cap") == 20
    assert scraped.value("budget_gpu_hours", envelope="a/a/e", state="used") == 8
    assert scraped.value("budget_gpu_hours", envelope="b/b/e", state="used") == 0


def test_resolution_and_its_lottery_draws_are_counted() -> None:
    scraped = Scraped()
    scraped.plant.submit("a/fixed")
    scraped.plant.submit("b/fixed")
    scraped.plant.wait(MINUTE)
    scraped.plant.submit("b/big", resources={"gpuType": "H", "totalGPUs": 16, "gpusPerPod": 8})
    scraped.plant.wait(10_000)
    until = scraped.value("reservation_seconds_until_start", run="b/big")
    assert until is not None
    assert 0 < until <= 15 * 60
    scraped.plant.wait(20 * MINUTE)
    assert scraped.plant.view("b/big").phase == "Running"
    assert scraped.value("resolver_invocations_total", cause="Reservation") == 1
    assert scraped.value("resolver_lottery_draws_total") == 2
    assert scraped.value("leases_closed_total", reason="RandomPreempt") == 2
    assert scraped.value("reservation_seconds_until_start", run="b/big") is None


def test_steps_of_a_turn_are_timed() -> None:
    scraped = Scraped()
    metrics = scraped._metrics
    assert metrics is not None
    metrics.begin("commit")
    metrics.end("commit")
    assert scraped.value("commit_seconds_count") == 1
    scraped.plant.submit("a/one")
    scraped.plant.wait(MINUTE)
    assert scraped.value("bind_seconds_count") == 1
