"""`leasehold sim --seed | --seeds | --plan`: run the control plane under the faults of a seed.

The simulator is imported only when it is needed, because the command line must start fast.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

if TYPE_CHECKING:
    from leasehold.sim.faults.plan import FaultPlan
    from leasehold.sim.faults.play import SeedOutcome
    from leasehold.sim.scenario.story import Story

PROFILES = ("quiet", "uniform", "hunter", "liveness", "breaking")
HELD, FAILED, MISUSED = 0, 1, 2
FRESH_COUNT = 20
TITLE_CHARS_MAX = 120


@dataclass(frozen=True)
class SimOptions:
    """The options of `leasehold sim`, by their names on the command line."""

    seed: int | None
    seeds: str | None
    fresh: str | None
    plan: Path | None
    profile: str | None
    workers: int
    digest: bool
    twice: bool
    marks: bool
    first: bool
    shrink: bool
    keep: Path


def run(asked: SimOptions) -> int:
    """Play what the options select, and return the exit status."""
    if asked.plan is not None:
        return _play(asked, _read_plan(asked.plan))
    if asked.seed is not None:
        return _one(asked, asked.seed)
    if asked.seeds or asked.fresh:
        return _many(asked)
    raise click.UsageError("name what to simulate: --seed N, --seeds A..B, --plan FILE or scenario")


def _one(asked: SimOptions, seed: int) -> int:
    from leasehold.sim.faults.plan import draw_plan
    from leasehold.sim.scenario.trouble import Profile

    plan = draw_plan(seed, profile=Profile(asked.profile) if asked.profile else None)
    if not asked.shrink:
        return _play(asked, plan)
    from leasehold.sim.faults.many import silence
    from leasehold.sim.faults.shrink import Shrinker, size_of

    silence()
    smaller = Shrinker(lambda size: click.echo(f"still fails: {size}")).shrink(plan)
    if smaller is None:
        click.echo(f"seed {seed} holds: there is nothing to shrink")
        return HELD
    file = _left_behind(asked.keep, smaller)
    click.echo(f"{size_of(smaller)} are left; leasehold sim scenario {file}")
    return FAILED


def _play(asked: SimOptions, plan: "FaultPlan") -> int:
    outcome = _traced(plan)
    if asked.digest:
        click.echo(f"{plan.seed} {outcome.digest}")
    click.echo(_verdict(outcome))
    return FAILED if outcome.problems else HELD


def _traced(plan: "FaultPlan", *, quiet: bool = False) -> "SeedOutcome":
    from leasehold.sim.faults.many import silence
    from leasehold.sim.faults.play import play

    silence()
    outcome = play(plan, keep_trace=not quiet)
    for line in outcome.trace:
        click.echo(line)
    return outcome


def play_scenario(file: str, story: "Story", *, quiet: bool) -> int:
    """Play a scenario with faults, on three controllers.

    Only invariants are checked. Expectations are not, because faults delay everything, and what is
    expected at an instant may become true later.
    """
    from leasehold.sim.faults.file import plan_of

    plan = plan_of(story, Path(file).read_text(encoding="utf-8"))
    outcome = _traced(plan, quiet=quiet)
    for problem in outcome.problems:
        click.echo(f"{file}: {problem}")
    missed = len(outcome.problems)
    click.echo(f"{file}: {f'{missed} did not hold' if missed else 'everything held'}")
    return FAILED if outcome.problems else HELD


def _many(asked: SimOptions) -> int:
    from leasehold.sim.faults.many import fresh_seeds, run_seeds
    from leasehold.sim.faults.plan import draw_plan
    from leasehold.sim.scenario.trouble import Profile

    seeds = _range(asked.seeds) if asked.seeds else []
    seeds += fresh_seeds(asked.fresh, FRESH_COUNT) if asked.fresh else []
    profile = Profile(asked.profile) if asked.profile else None

    def each(outcome: "SeedOutcome") -> None:
        if asked.digest:
            click.echo(f"{outcome.seed} {outcome.digest}")
        if outcome.problems:
            file = _keep(asked.keep, draw_plan(outcome.seed, profile=profile), str(outcome.seed))
            click.echo(_verdict(outcome))
            again = (
                f"to repeat: leasehold sim --seed {outcome.seed}; for a smaller plan add --shrink"
            )
            click.echo(f"{again}; its plan: {file}")

    tally = run_seeds(
        seeds,
        workers=asked.workers,
        twice=asked.twice,
        profile=profile,
        each=each,
        stop_at_first=asked.first,
    )
    for line in tally.lines():
        click.echo(line, err=asked.digest)  # keep the compared output clean
    missing = tally.missing() if asked.marks else []
    for mark in missing:
        click.echo(f"never reached: {mark}")
    return FAILED if tally.failed or missing else HELD


def _verdict(outcome: "SeedOutcome") -> str:
    if not outcome.problems:
        return f"seed {outcome.seed} ({outcome.profile}): everything held"
    listed = "\n".join(f"  {problem}" for problem in outcome.problems[:10])
    return f"seed {outcome.seed} ({outcome.profile}) failed at {outcome.at} ms:\n{listed}"


def _range(text: str) -> list[int]:
    """Parse a range of seeds: `A..B` with both ends, or a single number."""
    low, dots, high = text.partition("..")
    try:
        first = int(low)
        last = int(high) if dots else first
    except ValueError:
        raise click.UsageError(f"--seeds {text}: use two whole numbers, such as 0..999") from None
    if last < first:
        raise click.UsageError(f"--seeds {text}: use the smaller number first")
    return list(range(first, last + 1))


def _left_behind(folder: Path, plan: "FaultPlan") -> Path:
    """Write a scenario file that fails like the plan, and return its path. The file is played to
    check that it does."""
    from leasehold.sim.faults.file import plan_of, scenario_of
    from leasehold.sim.faults.play import play
    from leasehold.sim.scenario.parse import parse_story

    broken = play(plan).problems[0]
    text = scenario_of(plan, f"Seed {plan.seed}: {' '.join(broken.split())[:TITLE_CHARS_MAX]}")
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"shrunk-{plan.seed}.yaml"
    file.write_text(text, encoding="utf-8")
    again = play(plan_of(parse_story(text, str(file)), text)).problems
    assert again[:1] == [broken], f"{file} does not fail as its plan did: {again[:1]}"
    return Path(os.path.relpath(file))


def _keep(folder: Path, plan: "FaultPlan", name: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{name}.json"
    file.write_bytes(msgspec.json.format(msgspec.json.encode(plan), indent=1))
    return Path(os.path.relpath(file))


def _read_plan(file: Path) -> "FaultPlan":
    from leasehold.sim.faults.plan import FaultPlan

    try:
        return msgspec.json.decode(file.read_bytes(), type=FaultPlan)
    except OSError as error:
        raise click.UsageError(f"{file}: {error.strerror}") from None
    except msgspec.DecodeError as error:
        raise click.UsageError(f"{file} is not a plan: {error}") from None
