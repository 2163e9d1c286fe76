"""`make bench`: the decision core at fleet size, compared with naive baselines, on one core.

Times are CPU seconds of that core, so other load on the machine does not count. Only the last
measurements, of `leasehold up`, are wall seconds on all cores. Prints a table, and writes
`build/bench.json` as {name: value}. Each measurement runs in a process of its own, so that it does
not pay for another one's garbage.
"""

import json
import os
import sys
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from time import perf_counter
from typing import TypeVar

from bench import admit, embedded, events, limits, naive, plans, queue, rebuild, web

T = TypeVar("T")
NODES, LEASES = 10_000, 50_000
RUNS = 3_000
BUILD = Path("build")


def main() -> None:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    began = perf_counter()
    figures: dict[str, float] = {}
    rows: list[tuple[str, str, str, str]] = []

    def report(name: str, value: float, target: str, beside: str = "") -> None:
        figures[name] = round(value, 3)
        rows.append((name, f"{value:,.2f}", target, beside))
        print(f"  {name} = {value:,.2f}", file=sys.stderr, flush=True)

    full, _, refused = _alone(admit.measure, NODES, LEASES, RUNS)
    half, _, _ = _alone(admit.measure, NODES // 2, LEASES // 2, RUNS)
    plain = _alone(naive.admit_runs_per_s, NODES, LEASES, 20)
    report("admit_runs_per_s", full, ">= 2,000", f"{full / plain:,.0f}x a rescan ({plain:,.0f}/s)")
    report("admit_refused", refused, "0")
    report("admit_cost_growth_5k_to_10k_nodes", half / full, "<= 1.3", "twice the nodes")
    cost = _alone(plans.resolve_512, NODES)
    plain = _alone(naive.resolve_ms, NODES)
    report("resolve_512_ms", cost, "< 250", f"{plain / cost:,.0f}x a rescan ({plain:,.0f} ms)")
    spent, planned = _alone(plans.forecast_many, NODES, 1_000)
    plain = _alone(naive.forecast_s, NODES, 1_000)
    report("forecast_1000_s", spent, "< 2", f"{plain / spent:,.1f}x a replay ({plain:,.1f} s)")
    report("forecast_planned", planned, "256 (the depth)")
    spent, mib = _alone(rebuild.measure, 1_000_000, LEASES)
    plain = _alone(naive.rebuild_s, 1_000_000, LEASES)
    report("rebuild_1m_leases_s", spent, "< 15", f"{spent / plain:,.1f}x merely decoding them")
    report("rebuild_1m_leases_mib", mib, "< 2,048")
    _lines(report)
    _events(report)
    _web(report)
    _embedded(report)
    _print_table(rows)
    print("\nwhat an admission spends its time on (own time, under a profiler):")
    for row in _alone(limits.profile, NODES, LEASES, 1_000):
        print(f"  {row}")
    BUILD.mkdir(exist_ok=True)
    (BUILD / "bench.json").write_text(json.dumps(figures, indent=1) + "\n")
    print(f"\n{BUILD / 'bench.json'} written; {perf_counter() - began:,.0f} s in all")


def _lines(report: Callable[..., None]) -> None:
    """Measure a turn with 3,000 waiting runs: once while GPUs are lacking, once while budget is
    lacking."""
    for name, cap in (("gpus", 100_000), ("money", 8)):
        cost = _alone(queue.turn_ms, 3_000, cap)
        shorter = _alone(queue.turn_ms, 1_000, cap)
        apart = _alone(queue.turn_ms_apart, 1_000, cap)
        beside = f"{cost / shorter:.1f}x a third of them; each for itself {apart / shorter:,.0f}x"
        report(f"line_3000_{name}_ms", cost, "< 50", beside)


def _events(report: Callable[..., None]) -> None:
    """Measure an event while many different runs wait, and its growth with the queue."""
    before: tuple[float, float] | None = None
    for waiting in (1_000, 3_000, 10_000):
        first, ended, started = _alone(events.measure, NODES, waiting)
        beside = "all its turns, CPU time"
        if before is not None:
            beside = f"{ended / before[0]:.1f}x and {started / before[1]:.1f}x a third as many runs"
        report(f"first_planning_{waiting}_s", first, "< 1" if waiting == 1_000 else "")
        report(f"event_lease_ends_{waiting}_ms", ended, "< 50", beside)
        report(f"event_run_starts_{waiting}_ms", started, "< 50", beside)
        before = (ended, started)


def _web(report: Callable[..., None]) -> None:
    """Measure the dashboard over 10,000 nodes on which 5,000 runs hold every GPU."""
    found = _alone(web.measure, NODES)
    for name, target in (
        ("web_fleet_page_s", "< 2"),
        ("web_fleet_mib_sent", ""),
        ("web_now_page_s", "< 2"),
        ("web_runs_page_s", "< 2"),
        ("web_past_s", "< 1"),
        ("web_change_s", "< 1"),
        ("web_50_pages_core_percent", "< 25"),
        ("web_50_pages_mib", "< 100"),
    ):
        report(name, found[name], target)


def _embedded(report: Callable[..., None]) -> None:
    """Measure `leasehold up` on all cores. Its rates are compared with plain process spawning and
    plain inserts, measured on the same machine in the same run; the slower of the two is the
    yardstick."""
    found = _alone(embedded.load)
    spawns, inserts = found["plain_spawns_per_s"], found["plain_inserts_per_s"]
    allowed = min(spawns, inserts)
    report("plain_spawns_per_s", spawns, "")
    report("plain_inserts_per_s", inserts, "")
    for name in ("rest_submit_1", "rest_submit_32", "runs_started"):
        rate = found[f"{name}_per_s"]
        report(f"{name}_per_s", rate, f">= {allowed / 2:,.0f}", f"{rate / allowed:.2f} of what the "
               "slower of spawning and inserting allows")  # fmt: skip
        report(f"{name}_ratio", rate / allowed, ">= 0.5")
    report("runs_completed_per_s", found["runs_completed_per_s"], "", "from submission to the end")
    report("up_ready_empty_s", found["up_ready_empty_s"], "< 1")
    past = _alone(embedded.past)
    for name, target in (
        ("up_ready_big_s", "< 5"),
        ("list_10k_s", "< 1"),
        ("budgets_usage_s", "< 1"),
        ("leases_since_s", "< 1"),
        ("idle_cpu_percent", "< 1"),
        ("server_mib", "< 300"),
    ):
        report(name, past[name], target, "10,000 runs, 100,000 closed leases")


def _alone(work: Callable[..., T], *arguments: int) -> T:
    """Run `work` in a fresh process, which shares no memory and no caches with other
    measurements."""
    with get_context("spawn").Pool(1) as pool:
        return pool.apply(work, arguments)


def _print_table(rows: list[tuple[str, str, str, str]]) -> None:
    heads = ("figure", "measured", "target", "beside")
    widths = [max(len(row[i]) for row in [heads, *rows]) for i in range(4)]
    for row in [heads, *rows]:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)))


if __name__ == "__main__":
    main()
