"""The jobs of a workload, whatever file they come from, and functions that select and change
them."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from fractions import Fraction

from msgspec.structs import replace

from leasehold.core.facts import Record
from leasehold.core.objects.problems import Problem
from leasehold.core.units import Instant, Millis
from leasehold.shell.config.yamlfile import BadFile, Mistake

MISTAKES_MAX = 10  # per file; further lines are not checked
# The year 3000: all instants of a replay can still be written
INSTANT_MAX: Instant = 32_503_680_000_000

NO_GPU = "without a GPU, left out"
NEVER_RAN = "without a duration, left out"
ROUNDED = "with a part of a GPU, which get a whole one"
UNFINISHED = "not over when the ledger was exported, replayed for as long as they had run"


class Job(Record):
    """One job: what was requested, when it was submitted, and how long it takes without
    interruption."""

    line: int
    name: str
    owner: str
    gpus: int
    submit: Instant
    duration: Millis
    limit: Millis | None = None  # the submitter's estimate of the maximum duration
    flavor: str = ""


@dataclass
class Workload:
    """Jobs in order of submission, and counts of rows that were left out or changed."""

    path: str
    jobs: list[Job] = field(default_factory=list)
    remarks: Counter[str] = field(default_factory=Counter)

    def sort(self) -> None:
        """Sort the jobs by submission; jobs submitted at the same time keep the order of their
        lines."""
        self.jobs.sort(key=lambda job: (job.submit, job.line))


class Mistakes:
    """Collects the mistakes in a file and raises them as `BadFile`."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._found: list[Mistake] = []

    def note(self, line: int, value: str, remedy: str) -> None:
        problem = Problem(path="", value=value, remedy=remedy)
        self._found.append(Mistake(line=line, problem=problem))
        if len(self._found) == MISTAKES_MAX:
            self.settle()

    def settle(self) -> None:
        if self._found:
            raise BadFile(self._path, self._found)


def bad_file(path: str, line: int, value: str, remedy: str) -> BadFile:
    """Return a `BadFile` that names one mistake."""
    return BadFile(path, [Mistake(line=line, problem=Problem(path="", value=value, remedy=remedy))])


def within(jobs: Iterable[Job], since: Instant | None, until: Instant | None) -> list[Job]:
    """Return the jobs submitted in [since, until)."""
    return [
        job
        for job in jobs
        if (since is None or job.submit >= since) and (until is None or job.submit < until)
    ]


def hurried(jobs: list[Job], factor: Fraction) -> list[Job]:
    """Return the jobs with the times between submissions divided by `factor`. The first submission
    stays."""
    assert factor > 0, factor
    if factor == 1 or not jobs:
        return jobs
    first = jobs[0].submit
    return [replace(job, submit=first + int((job.submit - first) / factor)) for job in jobs]


Known = Callable[[Job], Millis | None]


def none_known(_: Job) -> Millis | None:
    """Return None: the job's Run declares no `runtime.maxDuration`."""
    return None


def all_known(resume: Millis = 0) -> Known:
    """Return a function that gives each job's exact duration as the limit of its Run, plus the time
    to load a checkpoint."""
    return lambda job: job.duration + resume


def limits_known(job: Job) -> Millis | None:
    """Return the limit in the job's row, which its Run declares; None if it has none. A run that
    reaches its limit is ended."""
    return job.limit
