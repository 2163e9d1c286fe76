"""Replays four teams of the Philly trace: `python -m bench.philly FOLDER [--load 0.935 0.70]`.

FOLDER has `philly_merged.csv.gz` (job, submission, virtual cluster, GPUs, duration) and
`philly_vc_nodes.csv` (nodes of each virtual cluster). Each variant is `leasehold sim replay` with
other options; the two baselines share no code with it. Writes `build/bench-philly.json`, and a page
with charts for each variant.
"""

import argparse
import csv
import gzip
import json
import subprocess
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from bench.philly_baselines import BaselineJob, waits_in_a_pool, waits_in_partitions

TEAMS = ("ee9e8c", "7f04ca", "0e4a51", "2869ce")
FROM, TO = "2017-10-01", "2017-12-01"
TRACE, NODES = "philly_merged.csv.gz", "philly_vc_nodes.csv"
FULL_LOAD = 0.701  # the load of these jobs on all nodes of these teams
OUT = Path("build/philly")
RESULT = Path("build/bench-philly.json")

# name -> the options of `leasehold sim replay`
VARIANTS = {
    "saved on stop": ("--checkpoint-on-stop",),
    "checkpoints of 1h": ("--checkpoint", "1h"),
    "durations known": ("--checkpoint-on-stop", "--durations", "all"),
}


def main(arguments: Sequence[str]) -> int:
    """Print a line for each baseline and variant, and write all figures."""
    parser = argparse.ArgumentParser(prog="python -m bench.philly")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--load", nargs="*", type=float, default=[0.935, 0.70])
    parser.add_argument("--config", nargs="*", type=Path, default=[], help="other configurations")
    parser.add_argument("--variant", nargs="*", choices=VARIANTS, default=list(VARIANTS))
    given = parser.parse_args(arguments)
    found = {}
    for load in given.load:
        nodes = scaled(own_nodes(given.folder), load)
        jobs = jobs_of(given.folder)
        rows = {
            "own partitions": by_team(jobs, waits_in_partitions(jobs, nodes)),
            "open pool": by_team(jobs, waits_in_a_pool(jobs, sum(nodes.values()))),
        }
        for variant in given.variant:
            for config in [None, *given.config]:
                name = variant if config is None else f"{variant}, {config.stem}"
                rows[name] = replayed(given.folder, load, nodes, variant, config)
        found[str(load)] = rows
        show(load, nodes, rows)
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps(found, indent=2))
    return 0


def own_nodes(folder: Path) -> dict[str, int]:
    with (folder / NODES).open() as file:
        count = {row["vc"]: int(row["node num"]) for row in csv.DictReader(file)}
    return {team: count[team] for team in TEAMS}


def scaled(nodes: dict[str, int], load: float) -> dict[str, int]:
    """Return the teams' node counts, scaled so that the jobs keep the fraction `load` of them
    busy."""
    return {team: round(count * FULL_LOAD / load) for team, count in nodes.items()}


def jobs_of(folder: Path) -> list[BaselineJob]:
    start, end = (datetime.fromisoformat(day) for day in (FROM, TO))
    found = []
    with gzip.open(folder / TRACE, "rt") as file:
        for row in csv.DictReader(file):
            at = datetime.fromisoformat(row["submit_time"])
            if row["vc"] in TEAMS and start <= at < end:
                lasts, gpus = int(float(row["duration_s"])), int(row["num_gpus"])
                submit = int((at - start).total_seconds())
                found.append(BaselineJob(submit, lasts, gpus, row["vc"]))
    return sorted(found, key=lambda job: job.submit)


def by_team(jobs: Sequence[BaselineJob], waits: Sequence[int]) -> dict[str, float]:
    """Return the mean wait of all jobs and of each team's jobs, in seconds."""
    means = {"mean": sum(waits) / len(waits)}
    for team in TEAMS:
        mine = [wait for job, wait in zip(jobs, waits) if job.team == team]
        means[team] = sum(mine) / len(mine)
    return means


def command(
    folder: Path, load: float, nodes: dict[str, int], variant: str, config: Path | None
) -> list[str]:
    """Write the fleet and the Budgets of a variant; return the variant's command line."""
    place = OUT / f"load-{load}"
    place.mkdir(parents=True, exist_ok=True)
    fleet, budgets = place / "fleet.yaml", place / "budgets.yaml"
    fleet.write_text(
        f"fleet: [{{domain: philly, nodes: {sum(nodes.values())}, gpus: 8, flavor: P100, "
        "region: philly, cluster: philly}]\n"
    )
    budgets.write_text("---\n".join(_budget(team, 8 * count) for team, count in nodes.items()))
    name = variant if config is None else f"{variant}-{config.stem}"
    page = place / f"{name.replace(' ', '-')}.html"
    line = ["sim", "replay", str(folder / TRACE), "--fleet", str(fleet), "--budgets", str(budgets)]
    line += ["--owner", "philly:{}", "--from", FROM, "--to", TO, "--html", str(page)]
    line += [word for team in TEAMS for word in ("--team", team)]
    line += ["--config", str(config)] if config is not None else []
    return [*line, *VARIANTS[variant]]


def _budget(team: str, gpus: int) -> str:
    return (
        "apiVersion: rq.davidlangworthy.io/v1\n"
        "kind: Budget\n"
        f"metadata: {{name: vc-{team}, namespace: vc-{team}}}\n"
        f"spec:\n  owner: philly:{team}\n"
        f"  envelopes: [{{name: own, flavor: P100, concurrency: {gpus}}}]\n"
    )


def replayed(
    folder: Path, load: float, nodes: dict[str, int], variant: str, config: Path | None
) -> dict[str, float]:
    """Run a variant and return its figures: the same ones as a baseline's, and some more."""
    line = command(folder, load, nodes, variant, config)
    print("leasehold", " ".join(word if word.isalnum() else repr(word) for word in line))
    run = subprocess.run(
        [sys.executable, "-m", "leasehold", *line, "-o", "json"], stdout=subprocess.PIPE, check=True
    )
    (replay,) = json.loads(run.stdout)["replays"]
    total = replay["total"]
    found = {"mean": total["waits"]["mean"]}
    for team in replay["teams"]:
        found[team["owner"].rpartition(":")[2]] = team["waits"]["mean"]
    found |= {"busy": replay["busyPercent"], "preemptions": total["preemptions"]}
    found |= {"failed": total["failed"], "lost": total["lostPercent"]}
    return {**found, "turns": replay["turns"], "cpu": replay["cpuSeconds"]}


def show(load: float, nodes: dict[str, int], rows: dict[str, dict[str, float]]) -> None:
    """Print a table of the mean waits in seconds. The last columns are figures that only a replay
    has."""
    head = ("mean", *TEAMS, "busy", "preemptions", "failed", "lost", "turns", "cpu")
    print(f"load {load}: {sum(nodes.values())} nodes of 8 GPUs, mean wait in seconds")
    print(" " * 32, *(f"{name:>11}" for name in head))
    for name, row in rows.items():
        cells = (f"{row[key]:>11,.6g}" if key in row else " " * 11 for key in head)
        print(f"{name:<32}", *cells)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
