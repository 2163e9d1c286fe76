"""How long jobs wait where no controller decides: two baselines for replays, in plain Python.

*Own partitions*: every team has only its own nodes. *Open pool*: all teams share all nodes. In both
a later job may pass one that does not fit yet, and nothing is preempted. They share no code with
the product.
"""

import heapq
from collections.abc import Sequence
from typing import NamedTuple

GPUS_PER_NODE = 8


class BaselineJob(NamedTuple):
    """In seconds and GPUs."""

    submit: int
    duration: int
    gpus: int
    team: str


def waits_in_partitions(jobs: Sequence[BaselineJob], nodes: dict[str, int]) -> list[int]:
    """The wait of every job, each team alone on its nodes."""
    waits = [0] * len(jobs)
    for team, count in nodes.items():
        mine = [index for index, job in enumerate(jobs) if job.team == team]
        for index, wait in zip(mine, _waits([jobs[each] for each in mine], count)):
            waits[index] = wait
    return waits


def waits_in_a_pool(jobs: Sequence[BaselineJob], nodes: int) -> list[int]:
    """The wait of every job on shared nodes, where a job that fits may pass those that do not."""
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
    """(node, GPUs) for a job: best fit on one node, or whole nodes, and best fit for the rest."""
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
