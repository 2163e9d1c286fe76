"""Profiles an admission, to find what limits its speed."""

import cProfile
import pstats
from pathlib import Path

from bench import admit

_SHOWN = 10


def profile(nodes: int, leases: int, count: int) -> list[str]:
    """Return the functions in which most time is spent while runs are admitted. The time of the
    functions that they call does not count."""
    profiler = cProfile.Profile()
    world_made = admit.prepare(nodes, leases)
    profiler.enable()
    admit.admit_all(world_made, count)
    profiler.disable()
    stats = pstats.Stats(profiler)
    total = sum(row[2] for row in stats.stats.values())  # type: ignore[attr-defined]
    rows = sorted(stats.stats.items(), key=lambda row: -row[1][2])  # type: ignore[attr-defined]
    return [
        f"{own / total:5.1%}  {Path(file).name}:{line} {name} ({calls:,} calls)"
        for (file, line, name), (calls, _, own, _, _) in rows[:_SHOWN]
    ]
