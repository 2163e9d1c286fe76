"""The figures of a replay: waits by team, GPUs in use over time, preemptions and work lost.

They are computed once from the result; the table, the JSON document and the page only show them.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence

from leasehold.core.facts import Phase, Record
from leasehold.core.units import SECOND, GpuMs, Instant, Millis, format_instant
from leasehold.sim.replay.player import JobHistory, Played

CURVE_POINTS = 101  # points of a waiting time curve: one per percent of the jobs
USE_POINTS = 400  # maximum number of points of the GPU use

ALL = ""  # team name that means all jobs


class Waits(Record, rename="camel"):
    """Seconds between submission and completion during which jobs did not run."""

    mean: float
    median: float
    p95: float
    longest: float
    to_first_start: float  # mean


class TeamFigures(Record, rename="camel"):
    """The results of one owner's jobs; of all jobs if `owner` is ""."""

    owner: str
    jobs: int
    completed: int
    failed: int  # ended for good by a preemption or a limit
    never_started: int
    unfinished: int  # started, but waiting to continue at the end
    waits: Waits | None  # of completed jobs; None if there are none
    curve: tuple[float, ...]  # their waits in seconds: 0 %, 1 %, … 100 % quantiles
    preempted: int  # jobs that were preempted at least once
    preemptions: int
    gpu_hours: float
    lost_gpu_hours: float
    lost_percent: float  # of the GPU-hours used


class GpuUse(Record, rename="camel"):
    """GPUs in use over time: the mean in each of several equal time steps, by owner."""

    start: str
    step_seconds: float
    owners: tuple[str, ...]
    gpus: tuple[tuple[float, ...], ...]  # by owner, then by step


class Figures(Record, rename="camel"):
    """The results of one replay, of one setting."""

    setting: str
    gpus: int
    first_submission: str
    last_submission: str
    end: str
    busy_percent: float  # GPUs in use between the first submission and the last
    total: TeamFigures
    teams: tuple[TeamFigures, ...]
    use: GpuUse
    turns: int
    cpu_seconds: float


def figures_of(played: Played) -> Figures:
    """Compute all numbers that the report shows about one replay."""
    courses = played.courses
    owners = sorted({course.job.owner for course in courses})
    gpus = sum(node.gpus for node in played.setting.nodes)
    first, last = courses[0].job.submit, courses[-1].job.submit
    return Figures(
        setting=played.setting.name,
        gpus=gpus,
        first_submission=format_instant(first),
        last_submission=format_instant(last),
        end=format_instant(played.ended_at),
        busy_percent=_percent(_used_between(played.use, first, last), gpus * (last - first)),
        total=_team(ALL, courses),
        teams=tuple(
            _team(owner, [course for course in courses if course.job.owner == owner])
            for owner in owners
        ),
        use=_use(played, owners),
        turns=played.turns,
        cpu_seconds=round(played.cpu_seconds, 1),
    )


def _team(owner: str, courses: Sequence[JobHistory]) -> TeamFigures:
    completed = [course for course in courses if course.ending == Phase.COMPLETED]
    waits = sorted(course.waited for course in completed)
    ran, lost = sum(course.ran for course in courses), sum(course.lost for course in courses)
    return TeamFigures(
        owner=owner,
        jobs=len(courses),
        completed=len(completed),
        failed=sum(bool(course.ending) for course in courses) - len(completed),
        never_started=sum(course.first_start is None for course in courses),
        unfinished=sum(not course.ending and course.first_start is not None for course in courses),
        waits=_waits(waits, completed) if waits else None,
        curve=tuple(_seconds(at) for at in curve_of(waits)),
        preempted=sum(course.preemptions > 0 for course in courses),
        preemptions=sum(course.preemptions for course in courses),
        gpu_hours=_hours(ran),
        lost_gpu_hours=_hours(lost),
        lost_percent=_percent(lost, ran),
    )


def _waits(waits: Sequence[Millis], completed: Sequence[JobHistory]) -> Waits:
    first = sum((course.first_start or 0) - course.job.submit for course in completed)
    return Waits(
        mean=_seconds(sum(waits) / len(waits)),
        median=_seconds(quantile(waits, 50)),
        p95=_seconds(quantile(waits, 95)),
        longest=_seconds(waits[-1]),
        to_first_start=_seconds(first / len(completed)),
    )


def quantile(ordered: Sequence[Millis], percent: int) -> Millis:
    """Return the first of the ordered values that at least `percent` percent of them do not exceed
    (nearest rank).

    Example: the 50 % quantile of [1, 2, 3, 4] is 2.
    """
    rank = -(-len(ordered) * percent // 100)
    return ordered[max(rank, 1) - 1]


def curve_of(ordered: Sequence[Millis]) -> list[Millis]:
    """Return the quantiles for 0 %, 1 %, … 100 % of the ordered values; [] if there are none."""
    return [quantile(ordered, percent) for percent in range(CURVE_POINTS)] if ordered else []


def _used_between(
    changes: Iterable[tuple[Instant, str, int]], start: Instant, end: Instant
) -> GpuMs:
    """Return the GPU time used from `start` to `end`."""
    area, level, since = 0, 0, start
    for at, _, change in changes:
        until = min(max(at, start), end)
        area += level * (until - since)
        level, since = level + change, until
    return area + level * (end - since)


def _use(played: Played, owners: Sequence[str]) -> GpuUse:
    start, end = played.started_at, max(played.ended_at, played.started_at + SECOND)
    count = min(USE_POINTS, max(1, (end - start) // SECOND))
    # Edges are whole milliseconds, so that the areas of the steps add up exactly.
    edges = [start + (end - start) * index // count for index in range(count + 1)]
    return GpuUse(
        start=format_instant(start),
        step_seconds=round((end - start) / count / SECOND, 3),
        owners=tuple(owners),
        gpus=tuple(
            _means([each for each in played.use if each[1] == owner], edges) for owner in owners
        ),
    )


def _means(
    changes: Sequence[tuple[Instant, str, int]], edges: Sequence[Instant]
) -> tuple[float, ...]:
    """Return the mean number of GPUs in use in each step between two consecutive `edges`."""
    areas = [0] * (len(edges) - 1)
    level, since = 0, edges[0]
    for at, _, change in (*changes, (edges[-1], "", 0)):
        step = bisect_right(edges, since) - 1
        while level and since < at:
            until = min(at, edges[step + 1])
            areas[step] += level * (until - since)
            since, step = until, step + 1
        level, since = level + change, at
    return tuple(
        round(area / (right - left), 2) for area, left, right in zip(areas, edges, edges[1:])
    )


def _seconds(millis: float) -> float:
    return round(millis / SECOND, 3)


def _hours(amount: GpuMs) -> float:
    return round(amount / (3_600 * SECOND), 3)


def _percent(part: int, whole: int) -> float:
    return round(100 * part / whole, 2) if whole else 0.0
