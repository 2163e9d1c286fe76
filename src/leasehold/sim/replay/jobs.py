"""The jobs of a workload from any source, and the selection to replay."""

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
    """One submission: the request, its time, and how long the work takes undisturbed."""

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
        """Sort the jobs into the order in which a server would have seen them."""
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
    """Return a `BadFile` with one reason."""
    return BadFile(path, [Mistake(line=line, problem=Problem(path="", value=value, remedy=remedy))])


def within(jobs: Iterable[Job], since: Instant | None, until: Instant | None) -> list[Job]:
    """Return the jobs submitted in [since, until)."""
    return [
        job
        for job in jobs
        if (since is None or job.submit >= since) and (until is None or job.submit < until)
    ]


def hurried(jobs: list[Job], factor: Fraction) -> list[Job]:
    """Return the jobs with submissions `factor` times as fast, from the first one on."""
    assert factor > 0, factor
    if factor == 1 or not jobs:
        return jobs
    first = jobs[0].submit
    return [replace(job, submit=first + int((job.submit - first) / factor)) for job in jobs]


Known = Callable[[Job], Millis | None]


def none_known(_: Job) -> Millis | None:
    """Declare no limits."""
    return None


def all_known(resume: Millis = 0) -> Known:
    """Declare each run's exact duration, plus the time to load a checkpoint."""
    return lambda job: job.duration + resume


def limits_known(job: Job) -> Millis | None:
    """Declare the limit in the job's row, if any; the run is ended when it is reached."""
    return job.limit
