"""Plays many seeds on several CPU cores and adds up the results.

Used by `leasehold sim --seeds`. With `twice`, each seed is played two times, and both histories
must be equal.
"""

import hashlib
import multiprocessing
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field

import structlog

from leasehold.core.units import HOUR, SECOND
from leasehold.sim.faults.checks import LeaderChange
from leasehold.sim.faults.coverage import EXPECTED
from leasehold.sim.faults.plan import draw_plan
from leasehold.sim.faults.play import SeedOutcome, play
from leasehold.sim.scenario.trouble import Profile

Echo = Callable[[str], object]
FRESH_MAX = 1 << 40  # fresh seeds are larger than any that users type


@dataclass
class BatchSums:
    """The results of many seeds, added up: failed seeds, time spent, commits, effects of faults,
    and the rare events (marks) that were reached."""

    seeds: int = 0
    failed: list[int] = field(default_factory=list)
    cpu_s: float = 0.0
    wall_s: float = 0.0
    simulated_ms: int = 0
    steps: int = 0
    commits: int = 0
    profiles: Counter[str] = field(default_factory=Counter)
    effects: Counter[str] = field(default_factory=Counter)
    marks: Counter[str] = field(default_factory=Counter)
    evaluated: Counter[str] = field(default_factory=Counter)
    take_overs: list[LeaderChange] = field(default_factory=list)

    def add(self, outcome: SeedOutcome, cpu_s: float) -> None:
        self.seeds += 1
        self.cpu_s += cpu_s
        self.simulated_ms += outcome.at
        self.steps += outcome.steps
        self.commits += outcome.commits
        self.profiles[outcome.profile] += 1
        self.effects += outcome.effects
        self.marks += outcome.marks
        self.evaluated += outcome.evaluated
        self.take_overs += outcome.take_overs
        if outcome.problems:
            self.failed.append(outcome.seed)

    def missing(self) -> list[str]:
        """Return the expected rare events (marks) that no seed reached."""
        return [mark for mark in EXPECTED if not self.marks[mark]]

    def lines(self) -> Iterator[str]:
        cpu = max(self.cpu_s, 1e-9)
        yield (
            f"{self.seeds} seeds, {len(self.failed)} failed; "
            f"{self.seeds / max(self.wall_s, 1e-9):.1f} seeds/s, "
            f"{self.simulated_ms / HOUR / cpu:.2f} simulated hours per CPU-second, "
            f"{self.steps / cpu:.0f} events/s, {self.commits} commits"
        )
        yield f"profiles: {_counted(self.profiles)}"
        yield f"fault effects: {_counted(self.effects)}"
        yield f"evaluated: {_counted(self.evaluated)}"
        marks = Counter({mark: self.marks[mark] for mark in EXPECTED})
        yield f"marks: {_counted(marks)}"
        for title, handed_over in (("handed over", True), ("taken over", False)):
            took = sorted(each.took for each in self.take_overs if each.handed_over is handed_over)
            if took:
                middle, most = took[len(took) // 2] / SECOND, took[-1] / SECOND
                yield f"{title}: {len(took)} times, median {middle:.1f} s, longest {most:.1f} s"


def run_seeds(
    seeds: Sequence[int],
    *,
    workers: int,
    twice: bool,
    profile: Profile | None,
    each: Callable[[SeedOutcome], object],
    stop_at_first: bool = False,
) -> BatchSums:
    tally, began = BatchSums(), time.monotonic()
    for outcome, cpu_s in _outcomes(seeds, workers, twice, profile):
        tally.add(outcome, cpu_s)
        each(outcome)
        if stop_at_first and outcome.problems:
            break
    tally.wall_s = time.monotonic() - began
    return tally


def fresh_seeds(text: str, count: int) -> list[int]:
    """Return seeds that were not played before. They depend only on `text`: each commit's id, for
    example, gives other seeds."""
    digests = (hashlib.sha256(f"{text}/{each}".encode()).digest() for each in range(count))
    return [FRESH_MAX + int.from_bytes(digest[:4], "big") for digest in digests]


def play_seed(task: tuple[int, bool, Profile | None]) -> tuple[SeedOutcome, float]:
    """Play one seed in a worker process, without logging. Return the outcome and the CPU seconds
    that one play took."""
    seed, twice, profile = task
    silence()
    began = time.process_time()
    outcome = play(draw_plan(seed, profile=profile))
    if twice:
        again = play(draw_plan(seed, profile=profile))
        if again.digest != outcome.digest:
            outcome.problems.append(
                f"not the same twice: {outcome.digest[:16]} and {again.digest[:16]}"
            )
    spent = time.process_time() - began
    return outcome, spent / 2 if twice else spent


def silence() -> None:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))


def _outcomes(
    seeds: Sequence[int], workers: int, twice: bool, profile: Profile | None
) -> Iterator[tuple[SeedOutcome, float]]:
    tasks: Iterable[tuple[int, bool, Profile | None]] = [(seed, twice, profile) for seed in seeds]
    if workers <= 1 or len(seeds) == 1:
        yield from map(play_seed, tasks)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(workers, os.cpu_count() or 1), mp_context=context) as pool:
        try:
            yield from pool.map(play_seed, tasks)
        except GeneratorExit:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _counted(counter: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counter.items()))
