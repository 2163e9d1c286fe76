"""`make bench-sim`: how fast the simulated control plane runs; writes `build/bench-sim.json`.

The simulation has 200 nodes, three controllers and the faults of one seed, and checks every
invariant at every commit. Times are CPU seconds of one core, so other load on the machine does not
count.
"""

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from leasehold.core.units import HOUR, SECOND
from leasehold.sim.faults.many import silence
from leasehold.sim.faults.plan import draw_plan
from leasehold.sim.faults.play import SeedOutcome, play
from leasehold.sim.scenario.trouble import Profile

BUILD = Path("build")
NODES, GPUS = 200, 8
HOURS = 8
SEED = 1
TARGET = 1_000
OWNERS = ("org:a", "org:a:x", "org:b")


def main() -> int:
    silence()
    plan = draw_plan(SEED, profile=Profile.UNIFORM, story=story())
    began = time.process_time()
    outcome = play(plan)
    spent = time.process_time() - began
    figures = measured(outcome, spent)
    BUILD.mkdir(exist_ok=True)
    (BUILD / "bench-sim.json").write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    for name, value in figures.items():
        print(f"{name} = {value:,.2f}")
    for problem in outcome.problems:
        print(problem)
    return 1 if outcome.problems or figures["simulated_seconds_per_cpu_second"] < TARGET else 0


def measured(outcome: SeedOutcome, spent: float) -> dict[str, float]:
    return {
        "simulated_seconds_per_cpu_second": round(outcome.at / SECOND / spent, 1),
        "simulated_hours": round(outcome.at / HOUR, 2),
        "cpu_seconds": round(spent, 2),
        "events_per_cpu_second": round(outcome.steps / spent, 1),
        "commits": outcome.commits,
        "take_overs": len(outcome.take_overs),
        "fault_effects": sum(outcome.effects.values()),
        "nodes": NODES,
        "controllers": 3,
    }


def story() -> str:
    """Return a scenario: eight hours of a fleet that is nearly full. Runs come and go; nodes fail
    and come back."""
    fleet = [
        {"domain": domain, "nodes": NODES // 2, "gpus": GPUS, "flavor": "H", "region": "r1",
         "cluster": "c1"}
        for domain in ("a", "b")
    ]  # fmt: skip
    budgets = {}
    for owner in OWNERS:
        name = owner.replace(":", "")
        envelopes = [{"name": "e", "flavor": "H", "concurrency": NODES * GPUS // 2}]
        budgets[f"{name}/{name}"] = {"owner": owner, "envelopes": envelopes}
    head = [
        "title: A day of a fleet",
        f"fleet: {json.dumps(fleet)}",
        f"budgets: {json.dumps(budgets)}",
        "steps:",
    ]
    return "\n".join([*head, *(f"  - {json.dumps(step)}" for step in _steps()), ""])


def _steps() -> Iterator[dict[str, object]]:
    for number in range(HOURS * 6):
        minutes = number * 10
        owner = OWNERS[number % len(OWNERS)]
        gpus = (8, 32, 64, 128)[number % 4]
        run = {
            "owner": owner,
            "resources": {"gpuType": "H", "totalGPUs": gpus, "gpusPerPod": 8},
            "sparesPerGroup": 8 if number % 5 == 0 else 0,
        }
        if not run["sparesPerGroup"]:
            del run["sparesPerGroup"]
        lasts = ("50m", "2h", "3h")[number % 3]
        key = f"{owner.replace(':', '')}/run{number}"
        yield {"at": f"{minutes}m", "submit": {key: run}, "work": {"lasts": lasts}}
        if number % 4 == 3:
            name = f"a-{number:02d}"
            yield {"at": f"{minutes}m", "node": {"name": name, "is": "dead"}}
            yield {"at": f"{minutes + 5}m", "node": {"name": name, "is": "ready"}}


if __name__ == "__main__":
    sys.exit(main())
