"""Two baselines for replays, in plain Python: how long jobs wait if no controller decides.

*Own partitions*: every team has only its own nodes. *Open pool*: all teams share all nodes. In both
a later job may start before an earlier one that does not fit yet, and nothing is preempted. The
baselines share no code with the product.
"""

import heapq
from collections.abc import Sequence
from typing import NamedTuple

GPUS_PER_NODE = 8


class BaselineJob(NamedTuple):
    """One job of the trace: its submission and duration in seconds, its GPUs and its team."""

    submit: int
    duration: int
    gpus: int
    team: str


def waits_in_partitions(jobs: Sequence[BaselineJob], nodes: dict[str, int]) -> list[int]:
    """Return the wait of every job if each team has only its own nodes."""
    waits = [0] * len(jobs)
    for team, count in nodes.items():
        mine = [index for index, job in enumerate(jobs) if job.team == team]
        for index, wait in zip(mine, _waits([jobs[each] for each in mine], count)):
            waits[index] = wait
    return waits


def waits_in_a_pool(jobs: Sequence[BaselineJob], nodes: int) -> list[int]:
    """Return the wait of every job if all teams share all nodes. A later job may start before an
    earlier one that does not fit yet."""
    return _waits(jobs, nodes)


def _waits(jobs: Sequence[BaselineJob], nodes: int) -> list[int]:
    free = [GPUS_PER_NODE] * nodes
    waits = [-1] * len(jobs)
    queue: list[int] = []
    ends: list[tuple[int, int, list[tuple[int, int]]]] = []
    arrived = 0
    while arrived < len(jobs) or ends:
        coming = [jobs[arrived].submit] if arrived < len(jobs) else []
        now = min([*coming, *([ends[0][0]] if ends else [])])
        while ends and ends[0][0] == now:
            for node, gpus in heapq.heappop(ends)[2]:
                free[node] += gpus
        while arrived < len(jobs) and jobs[arrived].submit == now:
            queue.append(arrived)
            arrived += 1
        left = []
        for index in queue:
            taken = _place(free, jobs[index].gpus)
            if taken is None:
                left.append(index)
                continue
            for node, gpus in taken:
                free[node] -= gpus
            waits[index] = now - jobs[index].submit
            heapq.heappush(ends, (now + jobs[index].duration, index, taken))
        queue = left
    return waits


def _place(free: Sequence[int], gpus: int) -> list[tuple[int, int]] | None:
    """Return the (node, GPUs) pairs for a job, or None if it does not fit.

    A job gets as many whole nodes as it fills. The remaining GPUs go to the node on which the
    fewest GPUs stay free. Example: 20 GPUs are two whole nodes and 4 GPUs of a third."""
    whole, rest = divmod(gpus, GPUS_PER_NODE)
    empty = [node for node, count in enumerate(free) if count == GPUS_PER_NODE]
    if len(empty) < whole:
        return None
    taken = [(node, GPUS_PER_NODE) for node in empty[:whole]]
    if rest:
        used = set(empty[:whole])
        fitting = [(n, node) for node, n in enumerate(free) if n >= rest and node not in used]
        if not fitting:
            return None
        taken.append((min(fitting)[1], rest))
    return taken
